"""`foldline export` and `foldline erase`: write a session out, erase sessions for good.

Erasing asks first; the store's receipt says what went.
"""

import sys
from pathlib import Path
from shutil import rmtree
from typing import Annotated

import typer
from msgspec.structs import asdict

from foldline.apps.cli.context import (
    Desk,
    find_checkpoints,
    make_command,
    open_named_session,
    resolve_session_name,
)
from foldline.apps.cli.exit_codes import DONE, NOTHING, STOPPED, NothingFound
from foldline.apps.cli.output import (
    escape_controls,
    format_size,
    format_time,
    print_remark,
    wrap_text,
)
from foldline.apps.cli.show import NameArgument
from foldline.core.names import format_count
from foldline.core.parts import replace_surrogates
from foldline.errors import BadInput
from foldline.session.export_log import Format, export_session
from foldline.session.stored_session import iterate_sessions
from foldline.stores.base import Name, Receipt, Retention, Store

_DAY, _MB = 86_400, 1_024 * 1_024


@make_command
async def export(
    desk: Desk,
    name: NameArgument,
    *,
    form: Annotated[
        Format, typer.Option("--format", help="jsonl is the log itself: import reads it back.")
    ] = "jsonl",
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Instead of the screen.")
    ] = None,
    sight: Annotated[
        bool, typer.Option("--sight", help="As the model sees it now, edits and all.")
    ] = False,
) -> None:
    """Write a session out: as a log, a chat or a text.

    openai and anthropic give the whole conversation in that provider's JSON, as if nothing had been
    edited; with --sight what the model sees now.
    """
    if sight and form in ("jsonl", "markdown"):
        raise BadInput(f"--sight goes with --format openai or anthropic, not {form}")
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        head = await store.head(seen.live.name)
        events = await seen.history.events()
    if head.trimmed:
        print_remark(f"what lies below log:{head.floor} was erased on {format_time(head.trimmed)}")
    body = export_session(seen, events, form, sight=sight)
    if file is not None:
        file.write_bytes(body)
    answer = {
        "session": seen.live.name.session,
        "format": form,
        "events": len(events),
        "bytes": len(body),
        "file": None if file is None else str(file),
    }
    if desk.json:
        desk.print_answer(answer if file else {**answer, "text": body.decode()}, list)
    elif file is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(escape_controls(body.decode()).encode())
    else:
        line = (
            f"wrote {file}: {format_count(len(events), 'event')} as {form}, "
            f"{format_size(len(body))}"
        )
        desk.print_answer(answer, lambda: wrap_text(line))


@make_command
async def erase(  # noqa: PLR0913 - one option for each limit of a rule
    desk: Desk,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The session, by its whole name.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    older: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, help="What nobody changed for so long."),
    ] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="All but the N last changed.")
    ] = None,
    most: Annotated[
        float | None,
        typer.Option("--size", metavar="MB", min=0, help="The oldest, until so much is left."),
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> int:
    """Erase sessions for good: one, all, or by a rule."""
    name = name if name is None else replace_surrogates(name)
    ruled = not (older is None and keep is None and most is None)
    if (name is not None) + every + ruled != 1:
        raise BadInput(
            "erase one NAME, --all, or by a rule of --older DAYS, --keep N, --size MB: "
            "one of these three"
        )
    rule = Retention(
        seconds=None if older is None else older * _DAY,
        sessions=0 if every else keep,
        size=None if most is None else int(most * _MB),
    )
    async with desk.open_store() as store:
        going = await _plan_erasure(store, desk, name, rule)
        if not going.sessions:
            if not dry:  # finish an erasure that was cut short
                await store.retain(desk.tenant, Retention())
            _print_receipt(desk, going)
            return NOTHING
        if not dry and not yes and not _ask_to_erase(going):
            print_remark("nothing was erased")
            return STOPPED
        if not dry:
            going = (
                await store.retain(desk.tenant, rule)
                if name is None
                else await store.erase(Name(desk.tenant, name))
            )
            for one in going.sessions:
                rmtree(find_checkpoints(desk, one), ignore_errors=True)
        kept = [one.session async for one in iterate_sessions(store, desk.tenant) if one.held]
    _print_receipt(desk, going)
    if kept and not desk.json:
        print_remark(f"kept, because they are held: {', '.join(kept[:5])}")
    return DONE


async def _plan_erasure(store: Store, desk: Desk, name: str | None, rule: Retention) -> Receipt:
    """Return a receipt of what would be erased."""
    if name is None:
        return await store.retain(desk.tenant, rule, dry=True)
    async for one in iterate_sessions(store, desk.tenant):
        if one.session == name:
            return Receipt((name,), one.head + 1, one.size, dry=True)
    found = await resolve_session_name(store, desk.tenant, name)
    raise NothingFound(
        f"there is no session {name!r}; {found.session!r} begins so: to erase, write its whole name"
    )


def _ask_to_erase(going: Receipt) -> bool:
    if not sys.stdin.isatty():
        raise BadInput("erasing asks first, and nobody is there to answer: add --yes")
    names = ", ".join(going.sessions[:5]) + (", …" if len(going.sessions) > 5 else "")  # noqa: PLR2004
    asked = f"Erase {format_count(len(going.sessions), 'session')} for good ({names})?"
    return typer.confirm(asked, err=True)


def _print_receipt(desk: Desk, going: Receipt) -> None:
    if not going.sessions:
        desk.print_answer(asdict(going), lambda: ["nothing to erase"])
        return
    done = "would erase" if going.dry else f"erased at {format_time(going.time)}"
    total = f"{format_count(len(going.sessions), 'session')}, {format_count(going.events, 'event')}"
    line = f"{done}: {total}, {format_size(going.size)}: {', '.join(going.sessions)}"
    desk.print_answer(asdict(going), lambda: wrap_text(line))
