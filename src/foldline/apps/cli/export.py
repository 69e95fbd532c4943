"""`export` and `erase`: a session out of the store, and a session gone from it.

Knows formats for others to read, and that erasing is asked about first. Refuses to know which bytes
an erasure touches: the store gives the receipt.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import asdict

from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NOTHING, STOPPED, NothingFound
from foldline.apps.cli.output import moment, remark, size, visible, wrapped
from foldline.apps.cli.show import NameArgument
from foldline.apps.cli.store_location import named
from foldline.core.parts import sound
from foldline.core.saying import many
from foldline.errors import BadInput
from foldline.session.export import Format, exported
from foldline.session.session_list import listed
from foldline.session.stored_session import left
from foldline.stores.base import Name, Receipt, Retention, Store

_DAY, _MB = 86_400, 1_024 * 1_024


@command
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
    async with desk.store() as store:
        seen = await left(store, await named(store, desk.tenant, name))
        head = await store.head(seen.live.name)
        events = await seen.history.events()
    if head.trimmed:
        remark(f"what lies below log:{head.floor} was erased on {moment(head.trimmed)}")
    body = exported(seen, events, form, sight=sight)
    if file is not None:
        file.write_bytes(body)
    told = {
        "session": seen.live.name.session,
        "format": form,
        "events": len(events),
        "bytes": len(body),
        "file": None if file is None else str(file),
    }
    if desk.json:
        desk.answer(told if file else {**told, "text": body.decode()}, list)
    elif file is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(visible(body.decode()).encode())
    else:
        line = f"wrote {file}: {many(len(events), 'event')} as {form}, {size(len(body))}"
        desk.answer(told, lambda: wrapped(line))


@command
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
    name = name if name is None else sound(name)
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
    async with desk.store() as store:
        going = await _going(store, desk, name, rule)
        if not going.sessions:
            if not dry:  # what an erasure left that was cut short goes now
                await store.retain(desk.tenant, Retention())
            _receipt(desk, going)
            return NOTHING
        if not dry and not yes and not _agreed(going):
            remark("nothing was erased")
            return STOPPED
        if not dry:
            going = (
                await store.retain(desk.tenant, rule)
                if name is None
                else await store.erase(Name(desk.tenant, name))
            )
        kept = [one.session async for one in listed(store, desk.tenant) if one.held]
    _receipt(desk, going)
    if kept and not desk.json:
        remark(f"kept, because they are held: {', '.join(kept[:5])}")
    return DONE


async def _going(store: Store, desk: Desk, name: str | None, rule: Retention) -> Receipt:
    """What would be erased, in the form of a receipt."""
    if name is None:
        return await store.retain(desk.tenant, rule, dry=True)
    async for one in listed(store, desk.tenant):
        if one.session == name:
            return Receipt((name,), one.head + 1, one.size, dry=True)
    found = await named(store, desk.tenant, name)
    raise NothingFound(
        f"there is no session {name!r}; {found.session!r} begins so: to erase, write its whole name"
    )


def _agreed(going: Receipt) -> bool:
    if not sys.stdin.isatty():
        raise BadInput("erasing asks first, and nobody is there to answer: add --yes")
    names = ", ".join(going.sessions[:5]) + (", …" if len(going.sessions) > 5 else "")  # noqa: PLR2004
    asked = f"Erase {many(len(going.sessions), 'session')} for good ({names})?"
    return typer.confirm(asked, err=True)


def _receipt(desk: Desk, going: Receipt) -> None:
    if not going.sessions:
        desk.answer(asdict(going), lambda: ["nothing to erase"])
        return
    done = "would erase" if going.dry else f"erased at {moment(going.time)}"
    total = f"{many(len(going.sessions), 'session')}, {many(going.events, 'event')}"
    line = f"{done}: {total}, {size(going.size)}: {', '.join(going.sessions)}"
    desk.answer(asdict(going), lambda: wrapped(line))
