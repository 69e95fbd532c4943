"""What begins with a slash, and what buttons say: one table.

Knows what each command does with a chat's session. Refuses to decide what is folded, and who may
talk. Every command but /stop waits for its turn in the chat; none reaches the model.
"""

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from foldline.apps.bot import cards
from foldline.apps.bot.html import framed, plainly
from foldline.apps.bot.inbox import Update
from foldline.core.parts import sound
from foldline.draw import picture, svg, terminal, words
from foldline.draw.text import clean, fit
from foldline.errors import FoldlineError
from foldline.session.costs import Bill
from foldline.session.history import pace
from foldline.session.model_facts import known

if TYPE_CHECKING:
    from foldline.apps.bot.chat import Chat

_TURNS, _SHOWN = 10, 48
_COLUMNS = 44  # of a telephone
_PREVIEW = "preview"
_COMMAND = re.compile(r"/(\w+)(?:@(\w+))?(?:\s+(.*))?", re.DOTALL)


class CommandGiven(NamedTuple):
    """A command as somebody gave it."""

    name: str
    given: str = ""
    admin: bool = False
    reply: int | None = None
    """The message that it is a reply to."""


class BotCommand(NamedTuple):
    """One of the table."""

    name: str
    help: str
    work: "Callable[[Chat, CommandGiven], Awaitable[None]]"
    arguments: str = ""
    hidden: bool = False


class _Misused(Exception):  # noqa: N818 - named for what was done
    """What to write instead."""


def read(text: str, bot: str) -> CommandGiven | None:
    """The command that a text is, if it is one for this bot."""
    found = _COMMAND.fullmatch(text)
    if found is None or (found[2] and found[2].lower() != bot.lower()):
        return None
    return CommandGiven(found[1].lower(), (found[3] or "").strip())


async def work_off(chat: "Chat", update: Update) -> None:
    """Do what was asked for; what is wrong with it is told."""
    asked = CommandGiven(**update)
    command = next((one for one in TABLE if one.name == asked.name), None)
    if command is None:
        await chat.say(plainly(f"There is no /{asked.name[:40]}; /help lists commands."))
        return
    try:
        await command.work(chat, asked)
    except _Misused as fault:
        await chat.say(plainly(str(fault)))
    except FoldlineError as fault:
        await chat.say(plainly(f"⚠ {fault}"))


def _total(chat: "Chat") -> int:
    live = chat.session.live
    return picture(live.view, live.facts).total


async def _compact(chat: "Chat", asked: CommandGiven) -> None:
    word, _, rest = asked.given.partition(" ")
    if word.lower().lstrip("-") == _PREVIEW:
        await _preview(chat, asked._replace(given=rest.strip()))
        return
    before = _total(chat)
    lost = await chat.session.fold(focus=asked.given)
    if lost is None:
        await chat.say(*cards.nothing())
        return
    window = chat.session.report.window
    await chat.say(*cards.compacted(before, _total(chat), window, lost))


async def _preview(chat: "Chat", asked: CommandGiven) -> None:
    focus = sound(asked.given)
    lost = await chat.session.fold(focus=focus, preview=True)
    await chat.say(*(cards.nothing() if lost is None else cards.previewed(lost, focus)))


async def _undo(chat: "Chat", asked: CommandGiven) -> None:
    if asked.given and not asked.given.isdecimal():
        raise _Misused("Write /undo, or /undo and the number of an edit.")
    before = _total(chat)
    edits = chat.session.edits
    which = int(asked.given) if asked.given else (edits[-1] if edits else None)
    await chat.session.undo(which)
    told = f"Edit {which} taken back: {before:,} tokens became {_total(chat):,}."
    await chat.say(plainly(told), [[cards.REDO]])


async def _redo(chat: "Chat", _: CommandGiven) -> None:
    place = await chat.session.history.taken_back()
    if place is None:
        raise _Misused("There is nothing to make again: no edit was taken back last.")
    before = _total(chat)
    await chat.session.undo(place)
    told = f"Made again: {before:,} tokens became {_total(chat):,}."
    await chat.say(plainly(told), [[cards.UNDO]])


async def _context(chat: "Chat", _: CommandGiven) -> None:
    live = chat.session.live
    drawn = picture(live.view, live.facts)
    told = f"Context: {cards.usage(drawn.total, drawn.window)}"
    buttons = [[cards.COMPACT, cards.PREVIEW]]
    try:
        import resvg_py  # noqa: PLC0415 - an extra of its own
    except ModuleNotFoundError:
        body = terminal(drawn, _COLUMNS, colour=False).rstrip("\n")
        await chat.say(framed(told, body), buttons)
        return
    pixels = bytes(resvg_py.svg_to_bytes(svg_string=svg(drawn), zoom=2))
    await chat.line.photo(chat.place, pixels, words=plainly(told), buttons=buttons)


async def _tokens(chat: "Chat", _: CommandGiven) -> None:
    live = chat.session.live
    drawn = picture(live.view, live.facts)
    turns = await chat.session.history.turns()
    on = pace(turns, chat.session.report)
    block = words.block(drawn, latest=on.latest, growth=on.growth, turns_left=on.turns_left)
    await chat.say(plainly("\n".join(block)))


async def _pin(chat: "Chat", asked: CommandGiven, *, on: bool = True) -> None:
    place: int | None = None
    if asked.reply is not None:
        place = chat.track.place(asked.reply)
        if place is None:
            raise _Misused("That message is not known any more; /pin and its place: /pin 12")
    elif asked.given:
        number = asked.given.removeprefix("log:")
        if not number.isdecimal():
            raise _Misused("Reply to a message with /pin, or write its place: /pin 12")
        place = int(number)
    if place is not None:
        await chat.session.pin(place, on=on)
    pins = ", ".join(f"log:{one}" for one in sorted(chat.session.live.view.pins))
    none = "Nothing is pinned; reply to a message with /pin."
    await chat.say(plainly(f"Pinned: {pins}" if pins else none))


async def _unpin(chat: "Chat", asked: CommandGiven) -> None:
    if asked.reply is None and not asked.given:
        raise _Misused("Reply to a message with /unpin, or write its place: /unpin 12")
    await _pin(chat, asked, on=False)


async def _history(chat: "Chat", _: CommandGiven) -> None:
    turns = await chat.session.history.turns()
    rows = [
        f"{one.number:>4} {one.total or '-':>7} {'fold ' if one.folded else ''}"
        f"{fit(clean(one.words), _SHOWN)}"
        for one in turns[-_TURNS:]
    ]
    head = f"{len(turns)} turns; turn, tokens, first words of the last {len(rows)}:"
    await chat.say(framed(head, "\n".join(rows)) if rows else plainly("No turn yet."))


async def _cost(chat: "Chat", _: CommandGiven) -> None:
    bill = Bill(chat.session)
    await bill.catch_up()
    cached = f", {bill.read:,} of them from the cache" if bill.read else ""
    told = f"{bill.calls:,} calls: {bill.input:,} tokens in{cached}, {bill.output:,} out."
    if bill.known is None:
        told += "\nIn dollars not known: the model has no price in the catalogue."
    else:
        told += f"\n${bill.dollars:,.4f} so far"
        told += f", without {bill.unpriced} calls of unknown price." if bill.unpriced else "."
    await chat.say(plainly(told))


async def _model(chat: "Chat", asked: CommandGiven) -> None:
    session = chat.session
    now = session.report
    if not asked.given:
        model = clean(session.live.view.model)
        await chat.say(plainly(f"{model}, window {now.window:,}; /model NAME takes another."))
        return
    if not asked.admin:
        raise _Misused("Only admins change the model.")
    name, _, size = asked.given.partition(" ")
    window = int(size) if size.strip().isdecimal() else None
    limits = known(name, window=window, reserve=None, policy=session.live.facts.policy).limits
    new = chat.seat.models(name)
    try:
        await session.switch(name, window=window)
    except BaseException:
        await new.close()
        raise
    old, chat.agent.model = chat.agent.model, new
    await old.close()
    source = "assumed" if limits.source == "default" else limits.source
    told = f"{clean(name)} answers from here on; its window is {limits.window:,} ({source})."
    await chat.say(plainly(told))


async def _retry(chat: "Chat", _: CommandGiven) -> None:
    if not chat.retry():
        raise _Misused("Nothing stands unanswered.")


async def _start(chat: "Chat", _: CommandGiven) -> None:
    model, name = clean(chat.session.live.view.model), chat.place.name
    told = (
        f"{model} answers here. This chat is the session {name}; it is kept. /help lists commands."
    )
    await chat.say(plainly(told))


async def _help(chat: "Chat", _: CommandGiven) -> None:
    await chat.say(plainly("\n".join(f"{one.usage}: {one.help}" for one in shown())))


class _Listed(NamedTuple):
    usage: str
    name: str
    help: str


def shown() -> list[_Listed]:
    """The commands that people are told of."""
    found = [
        _Listed(f"/{one.name} {one.arguments}".rstrip(), one.name, one.help)
        for one in TABLE
        if not one.hidden
    ]
    return [*found, _Listed("/stop", "stop", "stop the answer that comes just now")]


def ordered(asked: CommandGiven) -> dict[str, Any]:
    """A command as the inbox keeps it."""
    return asked._asdict()


def pressed(says: str, card: str) -> CommandGiven:
    """What a button asks for; a preview's focus stands on its card."""
    _, _, focus = card.partition(cards.FOCUS)
    return CommandGiven(says, focus.strip() if says == "compact" else "")


TABLE: tuple[BotCommand, ...] = (
    BotCommand("compact", "fold what is old now; FOCUS is kept above all", _compact, "[FOCUS]"),
    BotCommand("preview", "what a fold would do", _preview, "[FOCUS]"),
    BotCommand("undo", "take back the last fold, or an edit", _undo, "[EDIT]"),
    BotCommand("redo", "make again what was taken back", _redo),
    BotCommand("context", "what the model sees now, drawn", _context),
    BotCommand("tokens", "how full the window is", _tokens),
    BotCommand("pin", "as a reply: keep that message word for word", _pin),
    BotCommand("unpin", "as a reply: no longer", _unpin),
    BotCommand("history", "the last turns", _history),
    BotCommand("cost", "what was spent", _cost),
    BotCommand("model", "which model answers; admins take another", _model, "[NAME]"),
    BotCommand("retry", "ask again for an answer that did not come", _retry),
    BotCommand("help", "this", _help),
    BotCommand("start", "what this is", _start, hidden=True),
)
