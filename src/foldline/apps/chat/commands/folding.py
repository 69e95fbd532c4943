"""`/compact`, `/undo`, `/redo`, `/pin` and `/unpin`: what the model sees, by hand.

Knows how a fold is asked for and told of. Refuses to decide what is folded: A-36.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from foldline.apps.chat.commands.table import ChatCommand, Misused, number
from foldline.apps.cli.fold import lost_lines, untold
from foldline.apps.cli.output import paint, wrapped
from foldline.core import log
from foldline.core.log import by_user
from foldline.core.parts import retold
from foldline.draw.text import clean, fit
from foldline.session.summaries import Preparing

if TYPE_CHECKING:
    from foldline.apps.chat.conversation import Talk

_PREVIEW = "--preview"
_CHOICES = 20


async def _compact(talk: "Talk", given: str) -> None:
    words = given.split()
    focus = " ".join(word for word in words if word != _PREVIEW)
    if _PREVIEW in words:
        lost = await talk.session.fold(focus=focus, preview=True)
        if lost is None:
            talk.say(*_nothing())
            return
        talk.say(*wrapped("a fold now would do this; nothing was written:"), *lost_lines(lost))
        return
    drawn = talk.picture()
    share = 100 * drawn.total / drawn.window
    asked = f"Context: {drawn.total:,}/{drawn.window:,} ({share:.0f}%). Compact conversation? [y/N]"
    if await talk.agreed(asked):
        await fold(talk, focus=focus)
    else:
        talk.say(paint("nothing was folded", "dim"))


async def fold(talk: "Talk", *, focus: str = "") -> None:
    """Fold now, and tell what left the model's sight and how full the window is."""
    before = talk.picture().total
    narrator = talk.session.live.narrator
    talk.hearing.begin("folding" if narrator is None else "having it told by the summarizer")
    talk.hearing.quiet = True
    try:
        lost = await talk.session.fold(focus=focus)
    finally:
        talk.hearing.quiet = False
        talk.hearing.end()
    if isinstance(narrator, Preparing) and narrator.last and narrator.last.outcome != "told":
        talk.say(*untold(narrator.last.outcome, narrator.last.reason))
    if lost is None:
        talk.say(*_nothing())
        return
    talk.moved()
    then = talk.picture()
    told = f"{before:,} tokens became {then.total:,}, edit {talk.session.edits[-1]}:"
    talk.say(paint(told, "strong"), *lost_lines(lost), *wrapped("/undo takes it back"))
    talk.usage()


def _nothing() -> list[str]:
    return wrapped("nothing to fold: what is there is in use, or too little")


async def _undo(talk: "Talk", given: str) -> None:
    edit = number(given, "edit") if given else None
    before = talk.picture().total
    which = edit if edit is not None else (talk.session.edits[-1] if talk.session.edits else None)
    talk.redo = await talk.session.undo(edit)
    talk.moved()
    told = f"edit {which} taken back: {before:,} tokens became {talk.picture().total:,}"
    talk.say(*wrapped(f"{told}; /redo makes it again"))


async def _redo(talk: "Talk", _: str) -> None:
    place = talk.redo if talk.redo is not None else await talk.session.history.taken_back()
    if place is None:
        raise Misused("there is nothing to make again: no edit was taken back last")
    before = talk.picture().total
    await talk.session.undo(place)
    talk.redo = None
    talk.moved()
    talk.say(*wrapped(f"made again: {before:,} tokens became {talk.picture().total:,}"))


async def _pin(talk: "Talk", given: str) -> None:
    if given:
        await talk.session.pin(await _place(talk, given))
        talk.moved()
    _pins(talk)


async def _unpin(talk: "Talk", given: str) -> None:
    if not given:
        raise Misused("say what: /unpin 12, /unpin log:12 or /unpin last")
    await talk.session.pin(await _place(talk, given), on=False)
    talk.moved()
    _pins(talk)


async def _place(talk: "Talk", given: str) -> int | str:
    if given.strip().lower() != "last":
        return given.strip() if "(" in given or "-" in given else number(given, "place")
    held = talk.session.live.view.held
    said = [seq for seq, event in held.items() if by_user(event)]
    if not said:
        raise Misused("you have said nothing that is in sight; /search finds it, /pin log:N pins")
    return max(said)


def _pins(talk: "Talk") -> None:
    pins = ", ".join(f"log:{one}" for one in sorted(talk.session.live.view.pins))
    talk.say(
        *wrapped(f"pinned: {pins}" if pins else "nothing is pinned; /pin last pins your words")
    )


def _edits(talk: "Talk") -> Iterable[tuple[str, str]]:
    for edit in reversed(talk.session.edits[-_CHOICES:]):
        event = talk.session.live.view.held.get(edit)
        yield str(edit), log.kind(event) if event is not None else "edit"


def _messages(talk: "Talk") -> Iterable[tuple[str, str]]:
    yield "last", "your last message"
    held = sorted(talk.session.live.view.held.items(), reverse=True)
    some = [(seq, event) for seq, event in held if isinstance(event, log.UserSaid | log.ModelSaid)]
    for seq, event in some[:_CHOICES]:
        yield f"log:{seq}", fit(clean(retold(event.parts)[:200]), 50)


def _pinned(talk: "Talk") -> Iterable[tuple[str, str]]:
    return ((f"log:{one}", "pinned") for one in sorted(talk.session.live.view.pins))


COMMANDS = (
    ChatCommand(
        name="compact",
        arguments="[FOCUS] [--preview]",
        help="fold what is old now; FOCUS is kept above all",
        work=_compact,
        choices=lambda _: ((_PREVIEW, "only say what would leave the model's sight"),),
        also=("fold",),
    ),
    ChatCommand(
        name="undo",
        arguments="[EDIT]",
        help="take back the last fold, or an edit",
        work=_undo,
        choices=_edits,
    ),
    ChatCommand(name="redo", help="make again what was taken back", work=_redo),
    ChatCommand(
        name="pin",
        arguments="[last|N|HANDLE]",
        help="keep a message word for word through every fold",
        work=_pin,
        choices=_messages,
    ),
    ChatCommand(
        name="unpin", arguments="last|N|HANDLE", help="no longer", work=_unpin, choices=_pinned
    ),
)
