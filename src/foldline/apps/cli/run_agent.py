"""`foldline run claude`: a coding agent behind a private gateway, and what that saved."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import msgspec
import typer

from foldline.apps.cli.context import (
    Desk,
    StoreOption,
    TenantOption,
    apply_look,
    format_store_option,
    make_desk,
)
from foldline.apps.run.agent_setups import (
    AGENTS,
    Launch,
    RecallServer,
    Surroundings,
    add_agent_recall,
    find_setup,
)
from foldline.apps.run.foreground import run_in_foreground
from foldline.apps.run.private_gateway import PrivateGateway, check_gateway, make_run_folder
from foldline.apps.run.run_report import RunFigures, render_prediction, render_report
from foldline.core.budget import UNKNOWN_WINDOW
from foldline.core.log import (
    Asked,
    Opened,
    decode_event,
)
from foldline.core.names import format_count
from foldline.core.policy import OFF, STEADY, named
from foldline.dialects.base import find_path_dialect
from foldline.draw.course import Course, Following
from foldline.draw.picture import build_picture
from foldline.draw.wording import clean_line
from foldline.errors import BadInput
from foldline.models.catalog import resolve_model
from foldline.session.ledger import find_prices
from foldline.session.stored_session import open_stored_session
from foldline.stores import event_log
from foldline.stores.base import Name, Store

context_settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_EXTRA = ("uvicorn", "httptools", "aiohttp")
_DELIBERATE = (None, "", "compaction")  # an agent's own compaction is sent whole
_REFUSED = 400
_DRAIN = "5"  # seconds for answers under way when the agent has ended


def run(  # noqa: PLR0913 - one option for each thing that may be otherwise
    ctx: typer.Context,
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help=f"{', '.join(AGENTS)}, or any other program.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="The agent's own.")
    ] = None,
    *,
    policy: Annotated[
        str | None, typer.Option(help="The preset that plans; else the setting.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="The models' window; else as known.", min=1)
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry", help="Change nothing; say what folding would have saved.")
    ] = False,
    recall: Annotated[
        bool, typer.Option("--recall", help="Let models get back what was folded, for this run.")
    ] = False,
    gateway: Annotated[
        str | None, typer.Option(metavar="URL", help="Use a gateway that runs already.")
    ] = None,
    store_: StoreOption = None,
    tenant_: TenantOption = None,
) -> None:
    """Run a coding agent with its history folded; say what that saved.

    Nothing of the agent's settings is changed. Ends with the agent's own exit code. Options of
    `run` stand before AGENT, the agent's behind it.
    """
    preset = named(policy or STEADY.name).name
    if gateway is not None and (policy or window or dry or recall):
        raise BadInput(
            "--gateway: that gateway was started with options of its own, so --policy, --window, "
            "--dry and --recall mean nothing here; leave them out"
        )
    if shutil.which(agent) is None:
        raise BadInput(f"there is no program {agent!r} here; install it first")
    desk = make_desk(store=store_, tenant=tenant_, under=ctx.obj)
    found = Surroundings(os.environ, Path.home(), Path.cwd(), tuple(arguments or ()))
    with make_run_folder() as place:
        command = (agent, *(arguments or ()))
        if gateway is not None:
            check_gateway(gateway)
            launch = find_setup(agent)(found, gateway.rstrip("/").removesuffix("/v1"), place)
            _print_wrapped(*launch.remarks)
            code = _run_agent(command, launch, lambda _: None)
            _print_wrapped(f"the figures are in the sessions of the gateway at {gateway}")
            raise typer.Exit(code)
        wanted = OFF.name if dry else policy
        options = [] if wanted is None else ["--policy", wanted]
        options += ["--recall"] if recall else []
        # A dry run changes nothing, so the window is only the prediction's: a gateway would lower
        # what limits answers in it.
        options += [] if window is None or dry else ["--window", str(window)]
        code = _run_behind_gateway(
            desk,
            command,
            found,
            place,
            options=options,
            dry=Prediction(preset, window) if dry else None,
        )
    raise typer.Exit(code)


def _run_behind_gateway(  # noqa: PLR0913
    desk: Desk,
    command: tuple[str, ...],
    found: Surroundings,
    folder: Path,
    *,
    options: list[str],
    dry: "Prediction | None",
) -> int:
    """Run an agent behind a gateway of its own, and print the report."""
    if missing := [name for name in _EXTRA if find_spec(name) is None]:
        raise BadInput(
            f"the gateway needs {missing[0]!r}, which is not installed; "
            "pip install 'foldline[gateway]'"
        )
    is_first = "://" not in desk.address and not Path(desk.address).expanduser().exists()
    audit = folder / "audit.jsonl"
    setup = find_setup(command[0])
    program = [sys.executable, "-m", "foldline", "serve", "--tenant", desk.tenant]
    program += ["--audit", str(audit), "--drain", _DRAIN, "--relay-faults", *options]
    # The store is named by a variable: its address may hold a password, and anybody may see
    # command lines. The gateway has its port now, and is started when the agent could be set up.
    serving = PrivateGateway(
        program, folder / "gateway.log", environment={**os.environ, "FOLDLINE_STORE": desk.address}
    )
    launch = setup(found, serving.url, folder)
    if "--recall" in options and dry is None:
        server = RecallServer(desk.address, desk.tenant, audit, folder)
        launch = add_agent_recall(command[0], launch, server)
    serving.add_arguments(
        word for name, url in launch.upstreams.items() for word in ("--upstream", f"{name}={url}")
    )
    since = time.time()
    try:
        serving.start()
        _print_start(desk, launch, serving, is_first=is_first)
        code = _run_agent(command, launch, serving.protect)
    finally:
        serving.stop()
    if serving.restarts:
        again = format_count(serving.restarts, "time")
        _print_wrapped(f"the gateway died and was started again {again}")
    if serving.is_plain:
        _print_wrapped(f"nothing was folded, requests were only relayed: {serving.fault}")
    try:
        figures = asyncio.run(_build_report(desk, audit, since, dry))
        figures.fault = "" if serving.is_plain else clean_line(serving.find_unplanned())
        _print_report(figures, dry, desk, launch)
    except Exception as fault:  # noqa: BLE001 - the exit code is the agent's own, whatever fails here
        _print_wrapped(f"no figures: {fault}")
    return code


def _run_agent(command: tuple[str, ...], launch: Launch, started: Callable[[int], None]) -> int:
    program, *arguments = command if launch.given is None else (command[0], *launch.given)
    # Hooks that would offer what this run does already know by it to say nothing.
    environment = {**os.environ, **launch.environment, "FOLDLINE_RUN": "1"}
    return run_in_foreground([program, *launch.arguments, *arguments], environment, started=started)


def _print_start(desk: Desk, launch: Launch, serving: PrivateGateway, *, is_first: bool) -> None:
    """Say where conversations are kept; at the first run also what that means."""
    if serving.is_plain:
        _print_wrapped(
            f"gateway at {serving.url}; it only relays and keeps nothing: {serving.fault}"
        )
    else:
        kept = desk.where.replace(f"{Path.home()}/", "~/", 1)
        _print_wrapped(f"gateway at {serving.url}; conversations in {kept}")
        _print_wrapped(*filter(None, [serving.find_rule()]))
    if is_first and not serving.is_plain:
        _print_wrapped(
            "they are kept there word for word, readable by you alone; keys pass through and are "
            "stored nowhere; `foldline sessions` lists them, `foldline erase NAME` deletes one"
        )
    _print_wrapped(*launch.remarks)


def _print_wrapped(*sentences: str) -> None:
    """Write sentences to stderr, each wrapped to the terminal's width."""
    width = max(shutil.get_terminal_size().columns, 20)
    for sentence in sentences:
        text = f"foldline: {clean_line(sentence)}"
        lines = wrap(
            text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        sys.stderr.write("".join(f"{line}\n" for line in lines))


async def _build_report(
    desk: Desk, audit: Path, since: float, dry: "Prediction | None"
) -> RunFigures:
    """Read the figures of all sessions that the gateway noted in its audit."""
    figures = RunFigures()
    names, kept = dict[str, None](), 0
    for line in _read_audit(audit):
        figures.add_quota(line["quota"] or {})
        is_call = find_path_dialect(line["route"].partition("?")[0]) is not None
        is_answered = line["status"] < _REFUSED and line["ended"] == "done"
        figures.refused += is_call and line["status"] >= _REFUSED
        if is_call and line["unplanned"] not in _DELIBERATE:
            figures.unplanned[line["unplanned"]] += 1
        if line["session"]:
            names[line["session"]] = None
            kept += is_answered and "compaction" not in (line["patches"] or {})  # answered by us
        elif is_answered and (is_call or line["unplanned"]):
            figures.relayed += 1
    if not names:
        return figures
    async with desk.open_store() as store:
        for name in names:
            one = Name(desk.tenant, name)
            seen = await _read_session(store, one, since)
            figures.add_session(name, seen.course, seen.calls, prices_of=find_prices)
            figures.narratives += seen.narratives
            if dry:
                await dry.add_session(store, one, seen)
    # An answer that could not be recorded, as when a disk is full, is in no session.
    figures.relayed += max(kept - figures.calls, 0)
    return figures


@dataclass(slots=True)
class Prediction:
    """What folding would have cost in a run that only recorded."""

    policy: str
    window: int | None
    dollars: float = 0.0

    async def add_session(self, store: Store, name: Name, seen: "SeenSession") -> None:
        """Replay a session under the policy, and add what this run's calls would have cost.

        The lab replays what was sent, too: the errors of its model of the provider's cache are in
        both, and only what differs between them changes what was paid.
        """
        from foldline.lab.comparison import EVERYTHING, RECORDED, Case, Task, run_task  # noqa: PLC0415 - few
        from foldline.lab.recorded import load_stored_session  # noqa: PLC0415

        steps = seen.course.steps
        paid = [step.dollars or 0.0 for step in steps if step.at in seen.calls]
        if not any(paid):
            return
        session = await load_stored_session(store, name)
        known = resolve_model(session.model)
        case = Case(session, known.prices, self.window or known.window or UNKNOWN_WINDOW)
        # The same replay as the policy's, unless runs before this one have edited the session.
        sent = RECORDED if any(step.taken for step in steps) else EVERYTHING
        bills = [run_task(Task(case, one)).spent[-len(paid) :] for one in (sent, self.policy)]
        self.dollars += predict_dollars(paid, *bills)


def predict_dollars(paid: Sequence[float], sent: Sequence[float], folded: Sequence[float]) -> float:
    """Predict what calls would have cost, from two replays: of what was sent, and of a policy.

    Until the first call that the policy bills otherwise, each costs what was paid, wherever the
    provider found its tokens. From there on it is the ratio of both replays.
    """
    same = 0
    if len(paid) == len(sent) == len(folded):
        same = next(
            (at for at, bill in enumerate(zip(sent, folded, strict=True)) if bill[0] != bill[1]),
            len(paid),
        )
    rest = sum(sent[same:])
    ratio = sum(folded[same:]) / rest if rest else 1.0
    return sum(paid[:same]) + sum(paid[same:]) * ratio


def _print_report(figures: RunFigures, dry: Prediction | None, desk: Desk, launch: Launch) -> None:
    # A key has no such quota, so what was guessed from the agent's files gives way to it.
    is_subscription = launch.login == "subscription" or bool(figures.quota)
    lines = render_report(figures, is_subscription=is_subscription)
    if dry is not None:
        lines += render_prediction(
            figures, dry.dollars, dry.policy, is_subscription=is_subscription
        )
    if name := figures.main_session:
        option = format_store_option(desk.address)
        lines.append(f"  look      foldline history {name} --over-time{option}")
    sys.stderr.write("".join(f"{line}\n" for line in lines))


@dataclass(frozen=True, slots=True)
class SeenSession:
    """What a session's log tells of a run."""

    course: Course
    calls: frozenset[int]
    """The places of the answers that were asked for in the run."""
    narratives: int
    """Picodollars that the run's narratives cost."""


async def _read_session(store: Store, name: Name, since: float) -> SeenSession:
    """Read a session's log once, from its beginning."""
    seen = await open_stored_session(store, name)
    head = seen.live.view.head
    following = Following(build_picture(*apply_look(seen)), find_prices)
    calls, narratives, is_asked = set[int](), 0, False
    async for row in event_log.iterate_rows(store, name, head):
        event = decode_event(row.body)
        charge = following.apply_event(row.seq, event)
        if isinstance(event, Opened):  # in the middle: a fork, and what stands before it is a copy
            calls.clear()
            narratives = 0
        elif isinstance(event, Asked):
            is_asked = row.time >= since
        elif charge is not None and charge.kind == "narrative":
            narratives += (charge.amount or 0) if row.time >= since else 0
        elif charge is not None and is_asked:
            calls.add(charge.seq)
    return SeenSession(following.build_course(), frozenset(calls), narratives)


def _read_audit(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_bytes().splitlines():
            yield msgspec.json.decode(line)
