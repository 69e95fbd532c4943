"""Works coding tasks with our own agent under several arms, and counts what each took.

    plain        nothing is folded: a task that outgrows the window is not finished
    compaction   the model summarises its past when the window is nearly full, and starts anew
    policy       a Foldline policy, without a summary by a model

The compaction is made here and uses no preset of Foldline's: presets with a summary ask for it in
the background, and an agent's results fill the window before it is written, so that most of their
folds would have none. Each task runs in a temporary folder. The agent may change files inside it
and run the task's own check, nothing else.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from foldline.agent.approval import Approvals
from foldline.agent.events import Calling, Moment
from foldline.agent.factory import BASE
from foldline.agent.loop import Agent
from foldline.agent.tools import own
from foldline.core.budget import measure_budget
from foldline.core.log import Folded, UsageReported
from foldline.core.parts import calls_of, spoken_text_of
from foldline.core.policy import OFF
from foldline.core.prices import split_usage
from foldline.core.tokens import count_tokens
from foldline.dialects import base
from foldline.errors import Overflow
from foldline.lab.answer_file import AnswerFile, RunMoney
from foldline.lab.coding_tasks import CHECK, CodingTask, is_solved, write_files
from foldline.lab.comparison import Interval, estimate_interval
from foldline.models.port import Heard, Json, Model
from foldline.models.retries import PATIENT, Patience
from foldline.models.summarize import estimate_thinking_tokens
from foldline.session.open import aopen
from foldline.session.session import AsyncSession
from foldline.session.turn import reply

TaskArm: TypeAlias = Literal["plain", "compaction", "policy"]
TASK_ARMS: tuple[TaskArm, ...] = ("plain", "compaction", "policy")
_READ = "read"
_FULL = 0.65  # of the room; one more result takes at most a quarter, and a summary must still fit
_SUMMARISE = (
    "The window is nearly full. Call no tool. Write a summary with which somebody else can go on "
    "with the task at once: what was asked, what was found out (with paths, lines and values), "
    "what was changed, what the last test run said, and what is to be done next."
)
_SUMMARY = "[Your summary of the work so far]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """What is worked, whatever the number of tasks and arms."""

    model: str
    window: int = 8_192
    policy: str = "steady"
    rounds: int = 30
    """How often tools may be run in one task."""


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One task under one arm, as it is in the file."""

    task: str
    arm: TaskArm
    solved: bool
    ended: str
    """answered, rounds, or overflow: it did not fit the window any more."""
    calls: int
    tokens_in: int
    tokens_out: int
    dollars: float
    reread: int
    """Reads of a file range that had been read before and was no longer in view."""
    folds: int
    seconds: float


class TaskPrice(NamedTuple):
    """What a run would take at most, without what is done already."""

    tasks: int
    tokens_in: int
    tokens_out: int
    dollars: float


def estimate_task_price(
    run: TaskRun, arms: Sequence[TaskArm], tasks: Sequence[CodingTask], money: RunMoney
) -> TaskPrice:
    """Estimate the most that the missing tasks take: every round with a full window."""
    missing = [arm for task in tasks for arm in arms if _make_key(task, arm) not in money.file.rows]
    answer = run.window // 10
    # A summary takes a call beside the rounds; there is at most one for every two.
    calls = len(missing) * run.rounds + missing.count("compaction") * run.rounds // 2
    dollars = calls * money.estimate_dollars(run.window - answer, answer)
    return TaskPrice(len(missing), calls * (run.window - answer), calls * answer, dollars)


async def work_tasks(  # noqa: PLR0913 - a run, its subjects, and who works
    run: TaskRun,
    arms: Sequence[TaskArm],
    tasks: Sequence[CodingTask],
    model: Model,
    money: RunMoney,
    *,
    progress: Callable[[], None] = lambda: None,
    patience: Patience = PATIENT,
) -> None:
    """Work every task that the file has no outcome of; raises `MoneySpent` before it costs more."""
    for task in tasks:
        for arm in arms:
            key = _make_key(task, arm)
            if key not in money.file.rows:
                meter = MeteredModel(model, run, money)
                try:
                    outcome = await _work_task(run, arm, task, meter, patience)
                except BaseException:
                    if meter.dollars:  # what was paid counts, though the task is worked again
                        tried = sum(one.startswith(key) for one in money.file.rows)
                        money.file.add_row(f"{key}/stopped-{tried}", {"dollars": meter.dollars})
                    raise
                money.file.add_row(key, msgspec.to_builtins(outcome))
            progress()


def _make_key(task: CodingTask, arm: TaskArm) -> str:
    return f"{task.name}/{arm}"


@dataclass(slots=True)
class MeteredModel:
    """Passes requests on to a model, at temperature 0, and counts what they take."""

    model: Model
    run: TaskRun
    money: RunMoney
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0

    @property
    def name(self) -> str:
        """The name in the catalogue."""
        return self.model.name

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """Return the whole answer to a request."""
        dialect = base.choose_model_dialect(self.run.model)
        if not estimate_thinking_tokens(self.run.model):
            request = {"temperature": 0, **request}
        tokens = count_tokens(msgspec.json.encode(request).decode())
        bound = dialect.find_bound(request)
        most = bound[1] if bound else self.run.window // 10
        self.money.must_have(tokens, most, spent=self.dollars)
        body = await self.model.say(request, heard=heard)
        events = base.parse_any_message(body, own=dialect, saw=None, asked=None)
        used = next((one for one in events if isinstance(one, UsageReported)), UsageReported())
        paid = split_usage(used, tokens_in=tokens, tokens_out=most)
        self.calls += 1
        self.tokens_in += paid.input
        self.tokens_out += paid.output
        self.dollars += self.money.compute_dollars(paid)
        return body

    async def close(self) -> None:
        """Do nothing: whoever made the model closes it."""


@dataclass(slots=True)
class RereadWatch:
    """A hook that counts reads of what had been read before and was no longer in view."""

    session: AsyncSession | None
    count: int = 0
    seen: set[str] = field(default_factory=set[str])

    def __call__(self, moment: Moment) -> None:
        """Look at a call of the tool `read` before it runs."""
        if not isinstance(moment, Calling) or moment.call.name != _READ:
            return
        key = _make_range_key(moment.call.arguments)
        if key in self.seen and key not in self._list_shown():
            self.count += 1
        self.seen.add(key)

    def _list_shown(self) -> set[str]:
        """List the ranges whose results are in view, whole."""
        called: dict[str, str] = {}  # some servers use an id more than once: the newest counts
        shown: set[str] = set()
        for item in self.session.live.view.items if self.session else ():
            for call in calls_of(item.parts):
                called[call.id] = _make_range_key(call.arguments) if call.name == _READ else ""
            if item.role == "result" and item.state == "whole":
                shown.add(called.get(item.call_id, ""))
        return shown


def _make_range_key(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


async def _work_task(
    run: TaskRun, arm: TaskArm, task: CodingTask, meter: MeteredModel, patience: Patience
) -> TaskOutcome:
    begun = perf_counter()
    with tempfile.TemporaryDirectory(prefix="foldline-task-") as folder:
        worker = _Worker(run, arm, task, meter, patience, Path(folder))
        write_files(task, worker.root)
        try:
            ended = await worker.work_rounds()
        except Overflow:
            ended = "overflow"
        solved = await is_solved(task, worker.root)
    return TaskOutcome(
        task=task.name,
        arm=arm,
        solved=solved,
        ended=ended,
        calls=meter.calls,
        tokens_in=meter.tokens_in,
        tokens_out=meter.tokens_out,
        dollars=meter.dollars,
        reread=worker.watch.count,
        folds=worker.folds,
        seconds=round(perf_counter() - begun, 1),
    )


@dataclass(slots=True)
class _Worker:
    """Works one task: in one session, or in one after another where a summary starts anew."""

    run: TaskRun
    arm: TaskArm
    task: CodingTask
    meter: MeteredModel
    patience: Patience
    root: Path
    watch: RereadWatch = field(default_factory=lambda: RereadWatch(None))
    folds: int = 0
    left: int = 0
    """Rounds that are left."""

    async def work_rounds(self) -> str:
        """Work until the model has answered or the rounds are over; return how it ended."""
        self.left = self.run.rounds
        message: str | None = self.task.prompt
        ended = "rounds"
        while message is not None:
            policy = self.run.policy if self.arm == "policy" else OFF.name
            async with aopen(
                ":memory:", model=self.run.model, window=self.run.window, policy=policy
            ) as session:
                self.watch.session = session
                await session.add(message)
                ended, message = await self._work_session(session)
                logged = await session.history.events()
                self.folds += sum(isinstance(one.event, Folded) for one in logged)
        return ended

    async def _work_session(self, session: AsyncSession) -> tuple[str, str | None]:
        """Work in one session; returns how it ended, and what the next one begins with."""
        agent = self._make_agent(session)
        while self.left:
            if self.arm == "compaction" and _is_nearly_full(session):
                self.folds += 1
                return "rounds", f"{self.task.prompt}\n\n{await self._ask_summary(session)}"
            self.left -= 1
            ended = await agent.go_on()
            if ended.how != "rounds":
                return ended.how, None
        return "rounds", None

    def _make_agent(self, session: AsyncSession) -> Agent:
        approvals = Approvals(
            session.live.store,
            session.live.name.tenant,
            root=self.root,
            ask=None,
            mode="edits",
            allow=(f"shell: {CHECK}",),
        )
        return Agent(
            session,
            self.meter,
            tools=own(session, self.root),
            approve=approvals,
            hooks=[self.watch],
            instructions=lambda: [BASE],
            rounds=1,  # so that the window is looked at between two of them
            patience=self.patience,
        )

    async def _ask_summary(self, session: AsyncSession) -> str:
        """Have the model summarise the session, as coding agents do when the window is full."""
        await session.add(_SUMMARISE)
        await reply(session, self.meter, patience=self.patience)
        last = session.live.view.items[-1]
        return f"{_SUMMARY}\n{spoken_text_of(last.parts)}"


def _is_nearly_full(session: AsyncSession) -> bool:
    budget = measure_budget(session.live.view, session.live.facts.limits)
    return budget.used > _FULL * budget.room


class TaskArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm solved, and what it took."""

    arm: TaskArm
    name: str
    tasks: int
    solved: int
    share: Interval
    """The share that was solved, its interval by tasks."""
    difference: Interval | None
    """The share less that of `plain`, on the tasks that both worked."""
    overflowed: int
    """Tasks that did not fit the window any more."""
    calls: int
    tokens_in: int
    tokens_out: int
    dollars: float
    reread: int
    folds: int
    """Folds of a policy, or summaries of the compaction."""


def build_task_results(run: TaskRun, file: AnswerFile) -> list[TaskArmResult]:
    """Build the result of each arm that has outcomes in the file."""
    rows = [row for row in file.rows.values() if "solved" in row]
    outcomes = [msgspec.convert(row, TaskOutcome) for row in rows]
    plain = {one.task: one.solved for one in outcomes if one.arm == "plain"}
    return [
        _build_arm_result(run, arm, mine, plain)
        for arm in TASK_ARMS
        if (mine := [one for one in outcomes if one.arm == arm])
    ]


def _build_arm_result(
    run: TaskRun, arm: TaskArm, mine: Sequence[TaskOutcome], plain: dict[str, bool]
) -> TaskArmResult:
    names: dict[TaskArm, str] = {"policy": run.policy}
    paired = [float(one.solved) - plain[one.task] for one in mine if one.task in plain]
    return TaskArmResult(
        arm=arm,
        name=names.get(arm, arm),
        tasks=len(mine),
        solved=sum(one.solved for one in mine),
        share=estimate_interval([float(one.solved) for one in mine]),
        difference=estimate_interval(paired) if paired and arm != "plain" else None,
        overflowed=sum(one.ended == "overflow" for one in mine),
        calls=sum(one.calls for one in mine),
        tokens_in=sum(one.tokens_in for one in mine),
        tokens_out=sum(one.tokens_out for one in mine),
        dollars=sum(one.dollars for one in mine),
        reread=sum(one.reread for one in mine),
        folds=sum(one.folds for one in mine),
    )
