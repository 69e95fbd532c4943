"""The table of commands and buttons, and what each does.

Every command but /stop waits for its turn in the chat; none reaches the model.
"""

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from foldline.apps.bot import approval_cards
from foldline.apps.bot.bot_api import PREFIX, parse_session_name
from foldline.apps.bot.delivery import Update
from foldline.apps.bot.html import format_usage, render_framed_text, render_plain_text
from foldline.core.names import format_count
from foldline.core.parts import replace_surrogates
from foldline.draw import build_picture, draw_picture_svg, draw_picture_terminal, wording
from foldline.draw.wording import clean_line, truncate_to_width
from foldline.errors import FoldlineError
from foldline.session.carry import PARTS, read_parts
from foldline.session.history import measure_pace
from foldline.session.ledger import SessionLedger
from foldline.session.model_facts import build_facts

if TYPE_CHECKING:
    from foldline.apps.bot.telegram_chat import Chat

_TURNS, _SHOWN = 10, 48
_COLUMNS = 44  # of a telephone
_PREVIEW = "preview"
_COMMAND = re.compile(r"/(\w+)(?:@(\w+))?(?:\s+(.*))?", re.DOTALL)


class CommandGiven(NamedTuple):
    """A command with its argument and its author."""

    name: str
    given: str = ""
    admin: bool = False
    reply: int | None = None
    """The message that the command replies to."""
    user: int = 0
    """The account that gave it."""


class BotCommand(NamedTuple):
    """A command of the table."""

    name: str
    help: str
    work: "Callable[[Chat, CommandGiven], Awaitable[None]]"
    arguments: str = ""
    hidden: bool = False


class _Misused(Exception):  # noqa: N818 - named for what was done
    """What to write instead."""


def parse_bot_command(text: str, bot: str) -> CommandGiven | None:
    """Parse a command for this bot; None for any other text."""
    found = _COMMAND.fullmatch(text)
    if found is None or (found[2] and found[2].lower() != bot.lower()):
        return None
    return CommandGiven(found[1].lower(), (found[3] or "").strip())


async def work_off(chat: "Chat", update: Update) -> None:
    """Carry out a command, or say what is wrong with it."""
    asked = CommandGiven(**update)
    command = next((each for each in TABLE if each.name == asked.name), None)
    if command is None:
        text = f"There is no /{asked.name[:40]}; /help lists commands."
        await chat.send_notice(render_plain_text(text))
        return
    try:
        await command.work(chat, asked)
    except _Misused as fault:
        await chat.send_notice(render_plain_text(str(fault)))
    except FoldlineError as fault:
        await chat.send_notice(render_plain_text(f"⚠ {fault}"))


def _count_tokens(chat: "Chat") -> int:
    live = chat.session.live
    return build_picture(live.view, live.facts).total


async def _fold_session(chat: "Chat", asked: CommandGiven) -> None:
    word, _, rest = asked.given.partition(" ")
    if word.lower().lstrip("-") == _PREVIEW:
        await _send_fold_preview(chat, asked._replace(given=rest.strip()))
        return
    before = _count_tokens(chat)
    lost = await chat.session.fold(focus=asked.given)
    if lost is None:
        await chat.send_notice(*approval_cards.render_nothing_to_fold())
        return
    if summary := approval_cards.render_summary(lost):
        await chat.send_notice(summary)
    now, window = _count_tokens(chat), chat.session.report.window
    await chat.send_notice(*approval_cards.render_fold_result(before, now, window, lost))


async def _send_fold_preview(chat: "Chat", asked: CommandGiven) -> None:
    focus = replace_surrogates(asked.given)
    lost = await chat.session.fold(focus=focus, preview=True)
    if lost is None:
        await chat.send_notice(*approval_cards.render_nothing_to_fold())
    else:
        await chat.send_notice(*approval_cards.render_fold_preview(lost, focus))


async def _undo_edit(chat: "Chat", asked: CommandGiven) -> None:
    if asked.given and not asked.given.isdecimal():
        raise _Misused("Write /undo, or /undo and the number of an edit.")
    before = _count_tokens(chat)
    edits = chat.session.edits
    edit = int(asked.given) if asked.given else (edits[-1] if edits else None)
    await chat.session.undo(edit)
    text = f"Edit {edit} taken back: {before:,} tokens became {_count_tokens(chat):,}."
    await chat.send_notice(render_plain_text(text), [[approval_cards.REDO]])


async def _redo_edit(chat: "Chat", _: CommandGiven) -> None:
    place = await chat.session.history.taken_back()
    if place is None:
        raise _Misused("There is nothing to make again: no edit was taken back last.")
    before = _count_tokens(chat)
    await chat.session.undo(place)
    text = f"Made again: {before:,} tokens became {_count_tokens(chat):,}."
    await chat.send_notice(render_plain_text(text), [[approval_cards.UNDO]])


async def _send_context(chat: "Chat", _: CommandGiven) -> None:
    live = chat.session.live
    picture = build_picture(live.view, live.facts)
    text = f"Context: {format_usage(picture.total, picture.window)}"
    buttons = [[approval_cards.COMPACT, approval_cards.PREVIEW]]
    try:
        import resvg_py  # noqa: PLC0415 - an extra of its own
    except ModuleNotFoundError:
        body = draw_picture_terminal(picture, _COLUMNS, colour=False).rstrip("\n")
        await chat.send_notice(render_framed_text(text, body), buttons)
        return
    pixels = bytes(resvg_py.svg_to_bytes(svg_string=draw_picture_svg(picture), zoom=2))
    await chat.line.send_photo(chat.place, pixels, words=render_plain_text(text), buttons=buttons)


async def _send_token_usage(chat: "Chat", _: CommandGiven) -> None:
    live = chat.session.live
    picture = build_picture(live.view, live.facts)
    turns = await chat.session.history.turns()
    pace = measure_pace(turns, chat.session.report)
    block = wording.render_usage_block(
        picture, latest=pace.latest, growth=pace.growth, turns_left=pace.turns_left
    )
    await chat.send_notice(render_plain_text("\n".join(block)))


def _find_place(chat: "Chat", asked: CommandGiven, command: str) -> int | None:
    """Find the message that a command is about: the one it replies to, or a place that it names."""
    if asked.reply is not None:
        place = chat.track.find_place(asked.reply)
        if place is None:
            way = f"{command} and its place: {command} 12"
            raise _Misused(f"That message is not known any more; {way}")
        return place
    if not asked.given:
        return None
    number = asked.given.removeprefix("log:")
    if not number.isdecimal():
        raise _Misused(f"Reply to a message with {command}, or write its place: {command} 12")
    return int(number)


async def _pin_message(chat: "Chat", asked: CommandGiven, *, on: bool = True) -> None:
    place = _find_place(chat, asked, "/pin")
    if place is not None:
        await chat.session.pin(place, on=on)
    pins = ", ".join(f"log:{pin}" for pin in sorted(chat.session.live.view.pins))
    none = "Nothing is pinned; reply to a message with /pin."
    await chat.send_notice(render_plain_text(f"Pinned: {pins}" if pins else none))


async def _unpin_message(chat: "Chat", asked: CommandGiven) -> None:
    if asked.reply is None and not asked.given:
        raise _Misused("Reply to a message with /unpin, or write its place: /unpin 12")
    await _pin_message(chat, asked, on=False)


async def _exclude_message(chat: "Chat", asked: CommandGiven) -> None:
    place = _find_place(chat, asked, "/exclude")
    if place is None:
        raise _Misused("Reply to a message with /exclude, or write its place: /exclude 12")
    before = _count_tokens(chat)
    edit = await chat.session.history.exclude(place)
    text = (
        f"log:{place} is out of the model's sight: {before:,} tokens became "
        f"{_count_tokens(chat):,}. /undo {edit} brings it back."
    )
    await chat.send_notice(render_plain_text(text), [[approval_cards.UNDO]])


async def _carry_session(chat: "Chat", asked: CommandGiven) -> None:
    name, _, words = replace_surrogates(asked.given).partition(" ")
    if not name:
        raise _Misused(
            f"Write /carry and the session, and perhaps which parts of it: "
            f"/carry {PREFIX}{asked.user} {', '.join(PARTS)}"
        )
    if not _may_carry(chat, name, asked.user):
        raise _Misused(f"Only your own chats and this one's topics can be carried on, not {name}.")
    parts = read_parts(words) if words.strip() else None
    carried = await chat.session.carry(name, parts=parts)
    text = f"Carried: {carried}. It is log:{chat.session.live.view.head}; the next message goes on."
    await chat.send_notice(render_plain_text(text))


def _may_carry(chat: "Chat", name: str, user: int) -> bool:
    """Whether a session is this person's own, or all who are in this chat have it before them."""
    place = parse_session_name(name)
    if place is None or not user:
        return False
    shared = place.chat == chat.place.chat and place.user is None
    return shared or user in (place.chat, place.user)


async def _send_history(chat: "Chat", _: CommandGiven) -> None:
    turns = await chat.session.history.turns()
    rows = [
        f"{turn.number:>4} {turn.total or '-':>7} {'fold ' if turn.folded else ''}"
        f"{truncate_to_width(clean_line(turn.words), _SHOWN)}"
        for turn in turns[-_TURNS:]
    ]
    head = f"{format_count(len(turns), 'turn')}; turn, tokens, first words of the last {len(rows)}:"
    await chat.send_notice(
        render_framed_text(head, "\n".join(rows)) if rows else render_plain_text("No turn yet.")
    )


async def _send_cost(chat: "Chat", _: CommandGiven) -> None:
    ledger = SessionLedger(chat.session)
    await ledger.catch_up()
    await chat.send_notice(render_plain_text("\n".join(wording.describe_charges(ledger))))


async def _switch_model(chat: "Chat", asked: CommandGiven) -> None:
    session = chat.session
    if not asked.given:
        model, window = clean_line(session.live.view.model), session.report.window
        text = f"{model}, window {window:,}; /model NAME takes another."
        await chat.send_notice(render_plain_text(text))
        return
    if not asked.admin:
        raise _Misused("Only admins change the model.")
    name, _, size = asked.given.partition(" ")
    window = int(size) if size.strip().isdecimal() else None
    limits = build_facts(name, window=window, reserve=None, policy=session.live.facts.policy).limits
    new = chat.seat.models(name)
    try:
        await session.switch(name, window=window)
    except BaseException:
        await new.close()
        raise
    old, chat.agent.model = chat.agent.model, new
    await old.close()
    source = "assumed" if limits.source == "default" else limits.source
    text = f"{clean_line(name)} answers from here on; its window is {limits.window:,} ({source})."
    await chat.send_notice(render_plain_text(text))


async def _retry_answer(chat: "Chat", _: CommandGiven) -> None:
    if not chat.retry_answer():
        raise _Misused("Nothing stands unanswered.")


async def _send_welcome(chat: "Chat", _: CommandGiven) -> None:
    model, name = clean_line(chat.session.live.view.model), chat.place.name
    text = (
        f"{model} answers here. This chat is the session {name}; it is kept. /help lists commands."
    )
    await chat.send_notice(render_plain_text(text))


async def _send_help(chat: "Chat", _: CommandGiven) -> None:
    lines = [f"{command.usage}: {command.help}" for command in list_bot_commands()]
    await chat.send_notice(render_plain_text("\n".join(lines)))


class _Listed(NamedTuple):
    usage: str
    name: str
    help: str


def list_bot_commands() -> list[_Listed]:
    """List the commands that are shown to people."""
    listed = [
        _Listed(f"/{command.name} {command.arguments}".rstrip(), command.name, command.help)
        for command in TABLE
        if not command.hidden
    ]
    return [*listed, _Listed("/stop", "stop", "stop the answer that comes just now")]


def encode_command(asked: CommandGiven) -> dict[str, Any]:
    """Encode a command for the inbox."""
    return asked._asdict()


def parse_button(says: str, card: str) -> CommandGiven:
    """Turn a pressed button into a command; a preview's focus is read from its card."""
    _, _, focus = card.partition(approval_cards.FOCUS)
    return CommandGiven(says, focus.strip() if says == "compact" else "")


TABLE: tuple[BotCommand, ...] = (
    BotCommand(
        "compact", "fold what is old now; FOCUS is kept above all", _fold_session, "[FOCUS]"
    ),
    BotCommand("preview", "what a fold would do", _send_fold_preview, "[FOCUS]"),
    BotCommand("undo", "take back the last fold, or an edit", _undo_edit, "[EDIT]"),
    BotCommand("redo", "make again what was taken back", _redo_edit),
    BotCommand("context", "what the model sees now, drawn", _send_context),
    BotCommand("tokens", "how full the window is", _send_token_usage),
    BotCommand("pin", "as a reply: keep that message word for word", _pin_message),
    BotCommand("unpin", "as a reply: no longer", _unpin_message),
    BotCommand(
        "exclude", "as a reply: take that message out of the model's sight", _exclude_message
    ),
    BotCommand("history", "the last turns", _send_history),
    BotCommand("cost", "what was spent", _send_cost),
    BotCommand("model", "which model answers; admins take another", _switch_model, "[NAME]"),
    BotCommand(
        "carry", "take in the record of another chat of yours", _carry_session, "NAME [PARTS]"
    ),
    BotCommand("retry", "ask again for an answer that did not come", _retry_answer),
    BotCommand("help", "this", _send_help),
    BotCommand("start", "what this is", _send_welcome, hidden=True),
)
