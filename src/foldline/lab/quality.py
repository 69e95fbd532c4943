"""What a model remembers: planted facts asked under several ways to fit the window.

    everything    the whole conversation, if the model's real window holds it
    truncation    the newest messages that fit the window
    last          the last N messages
    policy        a Foldline policy, as it would have folded while the conversation grew
    search        the same, with the best hits of one search before the question
    summary       a summary by the same model of what no longer fits, and the newest messages

All arms are asked the same questions about the same conversations, so differences are paired.
Every answer is a line in a file (`answer_file`), and no question is asked twice.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from foldline.core.log import ModelSaid, UsageReported
from foldline.core.parts import spoken_text_of
from foldline.core.policy import OFF
from foldline.core.prices import split_usage
from foldline.core.tokens import count_tokens
from foldline.dialects import base
from foldline.lab.answer_file import AnswerFile, RunMoney
from foldline.lab.comparison import Interval, estimate_interval
from foldline.lab.kept_names import iterate_strings
from foldline.lab.planted import (
    FLAVOURS,
    TOOLS,
    UNKNOWN,
    ChatMessage,
    Flavour,
    PlantedFact,
    is_in_view,
    is_stale_alone,
    make_conversation,
)
from foldline.models.port import Json, Model
from foldline.models.retries import PATIENT, Patience, call_with_retries
from foldline.models.summarize import estimate_thinking_tokens
from foldline.session.open import aopen
from foldline.session.session import AsyncSession

Arm: TypeAlias = Literal["everything", "truncation", "last", "policy", "search", "summary"]
Verdict: TypeAlias = Literal["right", "unknown", "stale", "wrong"]
ARMS: tuple[Arm, ...] = ("everything", "truncation", "last", "policy", "search", "summary")
USUAL: tuple[Arm, ...] = ARMS[:-1]
"""The arms that are asked if none are named: a summary costs calls of its own."""
BASELINE: Arm = "truncation"
_SYSTEM = "You are an assistant. Answer from the conversation."
_ASK = "Reply with the value only. If it is not in what you can see, reply UNKNOWN."
_SUMMARISE = (
    "Summarise the conversation above for whoever goes on with it, in at most {words} words. Keep "
    "every name, number, date, code word and decision; where something was corrected, keep only "
    "the new value. Reply with the summary only."
)
_SUMMARY = "[Summary of the earlier conversation]\n"
_FOUND = "A search of the whole conversation found these passages:\n{found}\n\n"
_NOT_FOUND = "A search of the whole conversation found nothing.\n\n"
_FACTS = 12  # of a conversation: two rounds of all kinds
_ANSWER = 64  # tokens of an answer
_HITS = 5
_ENDLESS = 1_000_000_000  # a window in which nothing is edited
_SAMPLE = 200  # messages by which the size of a conversation is estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRun:
    """What is asked, whatever the number of conversations and arms."""

    model: str
    window: int = 8_192
    """The window that all arms but `everything` must fit."""
    policy: str = "steady"
    last: int = 20
    """Messages of the arm `last`."""
    length: float = 1.5
    """Tokens of a conversation, as a multiple of the window."""
    seed: int = 0


class QualityCase(NamedTuple):
    """A conversation and its facts."""

    seed: int
    messages: list[ChatMessage]
    facts: list[PlantedFact]

    @property
    def tokens(self) -> int:
        """The size of the conversation, as estimated."""
        return sum(map(_count_message_tokens, self.messages))


class QualityPrice(NamedTuple):
    """What a run would take at most, without what is answered already."""

    calls: int
    tokens_in: int
    tokens_out: int
    dollars: float


class QualityAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, as it is in the file."""

    conversation: int
    arm: Arm
    kind: str
    speaker: str
    question: str
    value: str
    said: str
    verdict: Verdict
    in_view: bool
    """Whether the request held the answer: subject and value in one line or sentence."""
    stale_alone: bool
    """Whether it held only the old value of a corrected fact."""
    tokens_in: int
    tokens_out: int
    dollars: float
    seconds: float


def make_cases(run: QualityRun, conversations: int) -> Iterator[QualityCase]:
    """Make the conversations, of one flavour after another; the same for the same run."""
    for number in range(conversations):
        flavour = FLAVOURS[number % len(FLAVOURS)]
        count = max(round(run.length * run.window / _measure_message(flavour)), 12)
        seed = 1_000 * run.seed + number
        yield QualityCase(number, *make_conversation(seed, count, flavour, facts=_FACTS))


@cache
def _measure_message(flavour: Flavour) -> float:
    messages, _ = make_conversation(0, _SAMPLE, flavour)
    return sum(map(_count_message_tokens, messages)) / len(messages)


def _count_message_tokens(message: ChatMessage) -> int:
    return sum(map(count_tokens, iterate_strings(message))) + 4  # about what a message adds


def judge_answer(fact: PlantedFact, said: str) -> Verdict:
    """Judge an answer: right if it contains the value, in any case."""
    plain = said.casefold()
    if fact.value.casefold() in plain:
        return "right"
    if UNKNOWN.casefold() in plain:
        return "unknown"
    return "stale" if fact.stale and fact.stale.casefold() in plain else "wrong"


def choose_arms(
    run: QualityRun, arms: Sequence[Arm], cases: Sequence[QualityCase], real_window: int | None
) -> tuple[tuple[Arm, ...], list[str]]:
    """Return the arms that can be asked, and a sentence about each that cannot."""
    notes: list[str] = []
    largest = max((case.tokens for case in cases), default=0)
    chosen: list[Arm] = [arm for arm in ARMS if arm in arms]
    if "everything" in chosen and (real_window is None or largest * 1.15 > real_window):
        chosen.remove("everything")
        known = f"{real_window:,}" if real_window else "unknown"
        notes.append(
            f"everything is not asked: conversations have up to {largest:,} tokens, and the "
            f"model's real window is {known}."
        )
    if real_window is not None and real_window < run.window:
        notes.append(f"the model's real window is only {real_window:,}: requests may be refused.")
    return tuple(chosen), notes


def estimate_price(
    run: QualityRun,
    arms: Sequence[Arm],
    cases: Sequence[QualityCase],
    money: RunMoney,
) -> QualityPrice:
    """Estimate the most that the missing answers take: every window full, nothing cached."""
    calls = tokens_in = tokens_out = 0
    dollars = 0.0
    answer = _limit_answer(run.model)
    for case in cases:
        for arm in arms:
            size = case.tokens if arm == "everything" else min(case.tokens, run.window)
            missing = sum(
                _make_key(case, arm, number) not in money.file.rows
                for number in range(len(case.facts))
            )
            summaries = 0
            if arm == "summary" and missing:  # each halves a full window
                summaries = max(-(-2 * (case.tokens - run.window) // run.window), 0)
            calls += missing + summaries
            tokens_in += size * (missing + summaries)
            tokens_out += answer * missing + _limit_summary(run) * summaries
            dollars += missing * money.estimate_dollars(size, answer)
            dollars += summaries * money.estimate_dollars(size, _limit_summary(run))
    return QualityPrice(calls, tokens_in, tokens_out, dollars)


async def ask_questions(  # noqa: PLR0913 - a run, its subjects, and who is asked
    run: QualityRun,
    arms: Sequence[Arm],
    cases: Sequence[QualityCase],
    model: Model,
    money: RunMoney,
    *,
    progress: Callable[[], None] = lambda: None,
    patience: Patience = PATIENT,
) -> None:
    """Ask everything that the file has no answer to; raises `MoneySpent` before it costs more."""
    for case in cases:
        desk = _Examiner(run, case, model, money, patience)
        for arm in arms:
            keys = [_make_key(case, arm, number) for number in range(len(case.facts))]
            missing = [at for at, key in enumerate(keys) if key not in money.file.rows]
            for _ in range(len(keys) - len(missing)):
                progress()
            if not missing:
                continue
            async with desk.open_arm(arm) as session:
                for at in missing:
                    answer = await desk.ask_fact(arm, session, case.facts[at], at)
                    money.file.add_row(keys[at], msgspec.to_builtins(answer))
                    progress()


def _make_key(case: QualityCase, arm: Arm, number: int) -> str:
    return f"{case.seed}/{arm}/{number}"


class _Examiner:
    """Asks a model about one conversation."""

    def __init__(
        self, run: QualityRun, case: QualityCase, model: Model, money: RunMoney, patience: Patience
    ) -> None:
        self.run, self.case, self.model, self.money = run, case, model, money
        self.patience = patience
        self.dialect = base.choose_model_dialect(run.model)
        # Anthropic refuses calls of tools that a request does not name; the others do not need it.
        self.tools = TOOLS if self.dialect.vendor.name == "anthropic" else ()

    @asynccontextmanager
    async def open_arm(self, arm: Arm) -> AsyncGenerator[AsyncSession]:
        """Open a session that holds what the arm shows before the question."""
        async with AsyncExitStack() as stack:
            if arm in ("policy", "search"):
                session = await stack.enter_async_context(self._open_session(self.run.policy))
                await self._replay_messages(session)
            else:
                session = await stack.enter_async_context(self._open_session(OFF.name))
                for message in await self._choose_messages(arm):
                    await session.add(message)
            yield session

    def _open_session(self, policy: str) -> Any:
        window = _ENDLESS if policy == OFF.name else self.run.window
        reserve = _limit_answer(self.run.model)
        return aopen(
            ":memory:",
            model=self.run.model,
            system=_SYSTEM,
            tools=self.tools,
            window=window,
            reserve=reserve,
            policy=policy,
        )

    async def _replay_messages(self, session: AsyncSession) -> None:
        """Add the messages as they came: a request before every answer, so that folds are made."""
        for message in self.case.messages:
            if message["role"] == "assistant":
                await session.request()
            await session.add(message)

    async def _choose_messages(self, arm: Arm) -> list[ChatMessage]:
        messages = self.case.messages
        match arm:
            case "truncation":
                return await self._truncate_messages(messages, await self._measure_room())
            case "last":
                return _start_with_user(messages[-self.run.last :])
            case "summary":
                return await self._summarise_messages()
            case _:
                return messages

    async def _measure_room(self) -> int:
        """Measure what the policy's own session leaves for a conversation and a question."""
        async with self._open_session(self.run.policy) as session:
            longest = max(count_tokens(fact.question) for fact in self.case.facts)
            return session.report.room - longest - count_tokens(_ASK) - 8

    async def _truncate_messages(self, messages: list[ChatMessage], room: int) -> list[ChatMessage]:
        """Return the newest messages that fit; they begin with a user's."""
        async with self._open_session(OFF.name) as session:
            sizes: list[int] = []
            for message in messages:
                before = session.live.view.tokens
                await session.add(message)
                sizes.append(session.live.view.tokens - before)
        start = len(messages)
        while start and sum(sizes[start - 1 :]) <= room:
            start -= 1
        return _start_with_user(messages[start:])

    async def _summarise_messages(self) -> list[ChatMessage]:
        """Summarise again and again what no longer fits, as an agent with compaction does."""
        room = await self._measure_room()
        shown: list[ChatMessage] = []
        pieces = 0
        for message in self.case.messages:
            shown.append(message)
            fits = len(await self._truncate_messages(shown, room)) == len(shown)
            if fits or message["role"] != "assistant" or message.get("tool_calls"):
                continue
            kept = await self._truncate_messages(shown, room // 2)
            summary = await self._ask_summary(shown[: len(shown) - len(kept)], pieces)
            pieces += 1
            shown = [{"role": "user", "content": _SUMMARY + summary}, *kept]
        return shown

    async def _ask_summary(self, messages: Sequence[ChatMessage], piece: int) -> str:
        key = f"{self.case.seed}/summary/piece-{piece}"
        if key in self.money.file.rows:
            return self.money.file.rows[key]["text"]
        most = _limit_summary(self.run)
        async with self._open_session(OFF.name) as session:
            for message in messages:
                await session.add(message)
            await session.add(_SUMMARISE.format(words=most // 2))
            request = await session.request(**self._make_parameters(most))
            heard = await self._call_model(request, session.report.total, most)
        self.money.file.add_row(
            key,
            {
                "text": heard.said,
                "tokens_in": heard.tokens_in,
                "tokens_out": heard.tokens_out,
                "dollars": heard.dollars,
            },
        )
        return heard.said

    async def ask_fact(
        self, arm: Arm, session: AsyncSession, fact: PlantedFact, number: int
    ) -> QualityAnswer:
        """Ask one question in a copy of the session, so that no question sees another."""
        question = f"{fact.question} {_ASK}"
        if arm == "search":
            found = await session.history.search(fact.question, limit=_HITS)
            lines = "\n".join(f"- {one.snippet}" for one in found)
            question = (_FOUND.format(found=lines) if found else _NOT_FOUND) + question
        copy = await session.fork(f"{arm}-{number}")
        await copy.add(question)
        most = _limit_answer(self.run.model)
        request = await copy.request(**self._make_parameters(most))
        heard = await self._call_model(request, copy.report.total, most)
        shown = "\n".join(iterate_strings(request[self.dialect.messages]))
        return QualityAnswer(
            conversation=self.case.seed,
            arm=arm,
            kind=fact.kind,
            speaker=fact.speaker,
            question=fact.question,
            value=fact.value,
            said=heard.said,
            verdict=judge_answer(fact, heard.said),
            in_view=is_in_view(fact, shown),
            stale_alone=is_stale_alone(fact, shown),
            tokens_in=heard.tokens_in,
            tokens_out=heard.tokens_out,
            dollars=heard.dollars,
            seconds=heard.seconds,
        )

    def _make_parameters(self, most: int) -> Json:
        """Make the parameters of a request; models that think take no temperature."""
        thinks = bool(estimate_thinking_tokens(self.run.model))
        cold: Json = {} if thinks else {"temperature": 0}
        silent: Json = {"tool_choice": {"type": "none"}} if self.tools else {}
        return self.dialect.lower_bound({**cold, **silent}, self.dialect.bounds[0], most)

    async def _call_model(self, request: Json, tokens: int, most: int) -> "_Heard":
        self.money.must_have(tokens, most)
        begun = perf_counter()
        body = await call_with_retries(self.model, request, patience=self.patience)
        seconds = round(perf_counter() - begun, 2)
        events = base.parse_any_message(body, own=self.dialect, saw=None, asked=None)
        said = next((one for one in events if isinstance(one, ModelSaid)), ModelSaid(()))
        used = next((one for one in events if isinstance(one, UsageReported)), UsageReported())
        words = spoken_text_of(said.parts).strip()
        paid = split_usage(used, tokens_in=tokens, tokens_out=count_tokens(words))
        dollars = self.money.compute_dollars(paid)
        return _Heard(words, paid.input, paid.output, dollars, seconds)


class _Heard(NamedTuple):
    said: str
    tokens_in: int
    tokens_out: int
    dollars: float
    seconds: float


def _limit_answer(model: str) -> int:
    return _ANSWER + estimate_thinking_tokens(model)


def _limit_summary(run: QualityRun) -> int:
    return min(max(run.window // 8, 128), 1_000) + estimate_thinking_tokens(run.model)


def _start_with_user(messages: list[ChatMessage]) -> list[ChatMessage]:
    start = next((at for at, one in enumerate(messages) if one["role"] == "user"), len(messages))
    return messages[start:]


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm remembers."""

    arm: Arm
    name: str
    asked: int
    right: int
    unknown: int
    stale: int
    wrong: int
    share: Interval | None
    """The share of right answers, its interval by conversations; None without answers."""
    difference: Interval | None
    """The share less that of truncation, on the questions that both were asked."""
    said_in_view: float | None
    """Of the facts that were said, the share that the request held."""
    stale_alone: int
    """Requests that held only the old value of a corrected fact."""
    by_kind: dict[str, tuple[int, int]]
    """Right and asked, by the kind of the fact."""
    by_speaker: dict[str, tuple[int, int]]
    tokens: float
    """Tokens of a request, on average."""
    dollars: float


def build_results(run: QualityRun, file: AnswerFile) -> list[ArmResult]:
    """Build the result of each arm that has answers in the file."""
    answers = [
        msgspec.convert(row, QualityAnswer) for row in file.rows.values() if "verdict" in row
    ]
    extra = sum(row["dollars"] for row in file.rows.values() if "verdict" not in row)
    by_arm: dict[Arm, list[QualityAnswer]] = {
        arm: [one for one in answers if one.arm == arm] for arm in ARMS
    }
    return [
        _build_result(run, arm, mine, by_arm[BASELINE], extra if arm == "summary" else 0.0)
        for arm, mine in by_arm.items()
        if mine
    ]


def name_arm(run: QualityRun, arm: Arm) -> str:
    """Name an arm for people."""
    names: dict[Arm, str] = {
        "last": f"last {run.last}",
        "policy": run.policy,
        "search": f"{run.policy}+search",
    }
    return names.get(arm, arm)


def _build_result(
    run: QualityRun,
    arm: Arm,
    mine: Sequence[QualityAnswer],
    baseline: Sequence[QualityAnswer],
    extra: float,
) -> ArmResult:
    said = [one for one in mine if one.kind != "never"]
    verdicts = [one.verdict for one in mine]
    return ArmResult(
        arm=arm,
        name=name_arm(run, arm),
        asked=len(mine),
        right=verdicts.count("right"),
        unknown=verdicts.count("unknown"),
        stale=verdicts.count("stale"),
        wrong=verdicts.count("wrong"),
        share=estimate_interval([*_share_by_conversation(mine).values()]),
        difference=_estimate_difference(mine, baseline) if arm != BASELINE else None,
        said_in_view=fmean(one.in_view for one in said) if said else None,
        stale_alone=sum(one.stale_alone for one in mine),
        by_kind=_count_right(mine, lambda one: one.kind),
        by_speaker=_count_right(said, lambda one: one.speaker),
        tokens=fmean(one.tokens_in for one in mine),
        dollars=sum(one.dollars for one in mine) + extra,
    )


def _share_by_conversation(answers: Sequence[QualityAnswer]) -> dict[int, float]:
    rights: dict[int, list[bool]] = {}
    for one in answers:
        rights.setdefault(one.conversation, []).append(one.verdict == "right")
    return {conversation: fmean(each) for conversation, each in rights.items()}


def _estimate_difference(
    mine: Sequence[QualityAnswer], baseline: Sequence[QualityAnswer]
) -> Interval | None:
    """Estimate the paired difference; conversations are resampled, as their answers go together."""
    both = {_pair_of(one) for one in mine} & {_pair_of(one) for one in baseline}
    ours = _share_by_conversation([one for one in mine if _pair_of(one) in both])
    theirs = _share_by_conversation([one for one in baseline if _pair_of(one) in both])
    return estimate_interval([ours[one] - theirs[one] for one in ours]) if both else None


def _pair_of(answer: QualityAnswer) -> tuple[int, str]:
    return answer.conversation, answer.question


def _count_right(
    answers: Sequence[QualityAnswer], group: Callable[[QualityAnswer], str]
) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for one in answers:
        right, asked = counts.get(group(one), (0, 0))
        counts[group(one)] = (right + (one.verdict == "right"), asked + 1)
    return counts
