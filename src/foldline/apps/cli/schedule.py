"""`foldline schedule`: entries that speak into sessions at their times, and their worker.

Times and claims are in `agent.schedule`. Needs the extra `schedule`.
"""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
import typer

from foldline.agent.schedule.schedule_entry import (
    ScheduleEntry,
    build_schedule_entry,
    pause_entry,
    resume_entry,
    times_of,
)
from foldline.agent.schedule.schedule_store import Schedules
from foldline.apps.cli.build_agent import Wish, open_agent
from foldline.apps.cli.config import ProfileOption, SetOption, parse_flags
from foldline.apps.cli.context import Desk, make_command, resolve_session_name
from foldline.apps.cli.exit_codes import CONFLICT, DONE, NOTHING, NothingFound
from foldline.apps.cli.output import (
    Column,
    clean_line,
    print_lines,
    print_remark,
    render_table,
    truncate_line,
)
from foldline.core.names import format_count
from foldline.core.parts import replace_surrogates
from foldline.errors import BadInput

if TYPE_CHECKING:
    from foldline.agent.loop import Agent
    from foldline.agent.schedule.scheduler import ScheduleNotice, Scheduler

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LENGTH = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SHOWN = 200  # characters of an answer in the worker's output
Approve: TypeAlias = Literal["ask", "edits", "all", "none"]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The entry.")]
UrlOption = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="A server that speaks as OpenAI does."),
]
ToolsOption = Annotated[
    bool, typer.Option("--tools/--no-tools", help="Whether it may read, write and run.")
]
ApproveOption = Annotated[
    Approve | None, typer.Option(help="What is done unasked: nothing, edits here, all, none.")
]


@make_command
async def add(  # noqa: PLR0913 - one option for each thing that an entry has
    desk: Desk,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call it.")],
    *,
    session: Annotated[str, typer.Option("--session", metavar="SESSION", help="Where it speaks.")],
    cron: Annotated[
        str, typer.Option("--cron", metavar="CRON", help="When: minute hour day month weekday.")
    ],
    words: Annotated[str, typer.Option("--say", metavar="TEXT", help="What it says.")],
    zone: Annotated[
        str, typer.Option("--zone", metavar="ZONE", help="Whose clock: Europe/Berlin.")
    ] = "UTC",
    missed: Annotated[
        Literal["skip", "once", "all"],
        typer.Option(help="Runs that nobody was there for: none, one for all, each up to 100."),
    ] = "once",
    late: Annotated[
        str | None,
        typer.Option("--late", metavar="2h", help="Later than this it is not made up for."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Begin the session, if there is none.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="With --new: who answers there.")
    ] = None,
) -> None:
    """Let an entry speak into a session, again and again.

    It speaks as `cron`, never as you. `foldline schedule run` fires it.
    """
    entry = build_schedule_entry(
        replace_surrogates(name),
        replace_surrogates(session),
        cron=cron,
        words=replace_surrogates(words),
        now=datetime.now(UTC),
        zone=zone,
        rule=missed,
        lateness=_parse_lateness(late),
    )
    wish = await _build_wish(desk, make=new, flags={"model": model} if model else {})
    async with wish.desk.open_store(make=new) as store:
        try:
            found = await resolve_session_name(store, wish.desk.tenant, session)
            entry = msgspec.structs.replace(entry, session=found.session)
        except NothingFound as fault:
            if not new:
                raise NothingFound(f"{fault}; --new begins it") from fault
            async with open_agent(wish, entry.session):
                pass  # opening creates it
        await Schedules(store, wish.desk.tenant).add_entry(entry)
    desk.print_answer(
        _encode_entry(entry),
        lambda: [
            truncate_line(
                f"{clean_line(entry.name)}: first {_format_entry_time(entry, entry.next)}, in ",
                entry.session,
            )
        ],
    )


@make_command
async def listed(desk: Desk) -> int:
    """Show the entries: when they come next, what they fired, what was missed."""
    async with _open_schedules(desk) as schedules:
        entries = await schedules.list_entries()
    desk.print_answer({"entries": [*map(_encode_entry, entries)]}, lambda: _render_entries(entries))
    return DONE if entries else NOTHING


@make_command
async def remove(desk: Desk, name: NameArgument) -> None:
    """Take an entry away; what it has said stays in its session."""
    async with _open_schedules(desk) as schedules:
        gone = await schedules.remove_entry(replace_surrogates(name))
    desk.print_answer(_encode_entry(gone), lambda: [truncate_line("removed ", gone.name)])


@make_command
async def pause(desk: Desk, name: NameArgument) -> None:
    """Let an entry rest; what comes meanwhile is no missed run."""
    await _change_entry(desk, name, pause_entry)


@make_command
async def resume(desk: Desk, name: NameArgument) -> None:
    """Let an entry speak again, also one that was stopped."""
    await _change_entry(desk, name, resume_entry)


@make_command
async def upcoming(
    desk: Desk,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="An entry; else all.")] = None,
    *,
    count: Annotated[int, typer.Option("-n", metavar="N", help="How many.", min=1, max=1_000)] = 5,
) -> int:
    """Show what comes next, and in what order."""
    async with _open_schedules(desk) as schedules:
        entries = (
            [await schedules.read_entry(replace_surrogates(name))]
            if name
            else await schedules.list_entries()
        )
    now = datetime.now(UTC)
    coming = ([(at, one) for at in islice(times_of(one.cron, one.zone).iterate_after(now), count)]
              for one in entries if one.enabled)  # fmt: skip
    soon = [*islice(merge(*coming, key=lambda pair: pair[0]), count)]
    rows = [{"at": at, "entry": one.name, "session": one.session} for at, one in soon]
    heads = [Column("WHEN"), Column("ENTRY", 24), Column("SESSION")]
    desk.print_answer(
        {"next": rows},
        lambda: render_table(
            heads, [[_format_entry_time(one, at), one.name, one.session] for at, one in soon]
        ),
    )
    return DONE if soon else NOTHING


@make_command
async def run(  # noqa: PLR0913 - one option for each thing that may be otherwise
    desk: Desk,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Fire what is due, see it answered, and end.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", help="Sessions at a time.", min=1)
    ] = 4,
    base_url: UrlOption = None,
    tools: ToolsOption = True,
    approve: ApproveOption = None,
    profile: ProfileOption = None,
    set_: SetOption = None,
) -> None:
    """Fire entries at their times, and let the agent answer, until SIGTERM or Ctrl-C.

    Several may run on one store: each time is fired by one of them, once. The agent works in this
    folder, under the settings that `foldline chat` would have here.
    """
    wish = await _build_wish(
        desk, flags=_collect_flags(base_url, approve, set_), profile=profile, tools=tools
    )
    from foldline.session.retention import run_retention  # noqa: PLC0415 - few run

    async with wish.desk.open_store() as store:
        one = _build_scheduler(
            Schedules(store, wish.desk.tenant),
            wish,
            told=partial(_print_notice, desk),
            most=concurrency,
        )
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, one.stop)
        said, tenants = wish.load_settings().retention, (wish.desk.tenant,)
        async with run_retention(store, lambda: tenants, said, notify=print_remark):
            await one.run(once=once)


@make_command
async def fire(  # noqa: PLR0913 - as above
    desk: Desk,
    name: NameArgument,
    *,
    base_url: UrlOption = None,
    tools: ToolsOption = True,
    approve: ApproveOption = None,
    profile: ProfileOption = None,
    set_: SetOption = None,
) -> int:
    """Let an entry speak now, by hand; its times stay as they are."""
    wish = await _build_wish(
        desk, flags=_collect_flags(base_url, approve, set_), profile=profile, tools=tools
    )
    async with wish.desk.open_store() as store:
        one = _build_scheduler(
            Schedules(store, wish.desk.tenant), wish, told=lambda _: None, most=1
        )
        done = await one.fire(replace_surrogates(name))
    body = {"entry": name, "what": done.what, "words": done.words}
    if done.what == "answered":
        desk.print_answer(body, lambda: [*map(clean_line, done.words.splitlines())])
        return DONE
    desk.print_answer(body, list[str])
    print_remark(f"it stands in the log and is not answered yet: {done.words}")
    return CONFLICT if done.what == "busy" else NOTHING


def _collect_flags(
    base_url: str | None, approve: str | None, set_: list[str] | None
) -> dict[str, Any]:
    said = {"model.base_url": base_url, "approval.mode": approve}
    return {**{key: one for key, one in said.items() if one is not None}, **parse_flags(set_)}


async def _build_wish(desk: Desk, *, make: bool = False, **given: Any) -> Wish:
    """Make a wish with the settings applied; raises if the store is missing, unless `make`."""
    wish = Wish(desk=desk, **given)
    wish = wish.apply_settings(wish.load_settings())
    async with wish.desk.open_store(make=make):
        pass  # raises for a missing store, which `resolve_trust` would create
    return await wish.resolve_trust()


@asynccontextmanager
async def _open_schedules(desk: Desk) -> AsyncGenerator[Schedules]:
    wish = await _build_wish(desk)
    async with wish.desk.open_store() as store:
        yield Schedules(store, wish.desk.tenant)


async def _change_entry(
    desk: Desk, name: str, how: Callable[[ScheduleEntry, datetime], ScheduleEntry]
) -> None:
    now = datetime.now(UTC)
    async with _open_schedules(desk) as schedules:
        entry = await schedules.change_entry(replace_surrogates(name), lambda one: how(one, now))
    desk.print_answer(
        _encode_entry(entry),
        lambda: [truncate_line(f"{clean_line(entry.name)}: ", _describe_state(entry))],
    )


def _build_scheduler(
    schedules: Schedules, wish: Wish, *, told: "Callable[[ScheduleNotice], None]", most: int
) -> "Scheduler":
    from foldline.agent.schedule.scheduler import Scheduler  # noqa: PLC0415 - few fire
    from foldline.session.session_settings import make_facts_of  # noqa: PLC0415

    return Scheduler(
        schedules,
        partial(_open_session_agent, wish),
        told=told,
        concurrency=most,
        random=Random(),  # noqa: S311 - pauses need no secrecy
        facts_of=make_facts_of(wish.load_settings()),
    )


def _open_session_agent(wish: Wish, session: str) -> "AbstractAsyncContextManager[Agent]":
    """Open the session's agent, as `foldline chat -m` does."""

    @asynccontextmanager
    async def open_seat() -> "AsyncGenerator[Agent]":
        async with open_agent(replace(wish, name=session, go_on=True), session) as seat:
            for note in seat.notes:
                print_remark(f"{session}: {note}")
            yield seat.agent

    return open_seat()


def _parse_lateness(written: str | None) -> float | None:
    if written is None:
        return None
    found = _LENGTH.fullmatch(written.strip())
    if found is None or not int(found[1]):
        raise BadInput(f"--late {written!r}: write a number and s, m, h or d, like 2h")
    return float(int(found[1]) * _UNITS[found[2]])


def _print_notice(desk: Desk, one: "ScheduleNotice") -> None:
    """Print a line per event; a message of the worker itself goes to stderr."""
    if one.entry is None:
        print_remark(one.words)
    elif one.what == "answered" and not one.words:
        return  # the turn before answered it
    elif desk.json:
        body = {"what": one.what, "entry": one.entry.name, "session": one.entry.session}
        print_lines(
            msgspec.json.encode({**body, "at": datetime.now(UTC), "words": one.words}).decode()
        )
    else:
        words = f": {one.words[:_SHOWN]}" if one.words else ""
        now = datetime.now().astimezone()
        print_lines(
            truncate_line(f"{now:%Y-%m-%d %H:%M:%S} {one.what} ", f"{one.entry.name}{words}")
        )
    sys.stdout.flush()


def _encode_entry(entry: ScheduleEntry) -> dict[str, Any]:
    body = {field: getattr(entry, field) for field in ScheduleEntry.__struct_fields__}
    del body["removed"]
    return {**body, "state": _describe_state(entry)}


def _describe_state(entry: ScheduleEntry) -> str:
    if entry.removed:
        return "removed"
    if not entry.enabled:
        return f"stopped: {entry.fault}" if entry.fault else "paused"
    if entry.fault:
        return f"no answer: {entry.fault}"
    if entry.claim is not None:
        return "being fired"
    return "waits for an answer" if entry.owed is not None else "on"


def _format_entry_time(entry: ScheduleEntry, at: datetime) -> str:
    form = "%Y-%m-%d %H:%M:%S %Z" if at.second else "%Y-%m-%d %H:%M %Z"
    return at.astimezone(times_of(entry.cron, entry.zone).zone).strftime(form)


def _render_entries(entries: list[ScheduleEntry]) -> list[str]:
    if not entries:
        return ["there is no entry; `foldline schedule add --help` tells how to make one"]
    heads = [
        Column("ENTRY", 14),
        Column("SESSION", 14),
        Column("CRON", 13),
        Column("NEXT", 20),
        Column("FIRED", 6, right=True),
        Column("MISSED", 6, right=True),
        Column("STATE"),
    ]
    rows = [
        [
            one.name,
            one.session,
            one.cron,
            _format_entry_time(one, one.next) if one.enabled else "-",
            f"{one.fired}",
            f"{one.missed}",
            _describe_state(one).partition(":")[0],
        ]
        for one in entries
    ]
    lines = render_table(heads, rows)
    for one in entries:
        if one.fault:
            lines += ["", truncate_line(f"{clean_line(one.name)}: ", one.fault)]
        lines += [
            truncate_line(f"{clean_line(one.name)}: missed ", f"{format_count(gap.count, 'run')}, "
                  f"{_format_entry_time(one, gap.first)} to "
                  f"{_format_entry_time(one, gap.last)}: {gap.why}")
            for gap in one.gaps[-3:]
        ]  # fmt: skip
    return lines
