"""Notices about folds, the bot's rules, and questions to admins about tools.

Admins approve a tool by buttons: once, always by a rule, or not at all. Without an answer in time,
the tool is refused: a turn does not hang on a person. The buttons of a question that was asked
before a restart no longer answer it, because its call was closed as interrupted.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from telegram.error import TelegramError

from foldline.agent.approval import Answer, Approvals, No, Yes
from foldline.agent.loop import Agent
from foldline.agent.tool import Intent
from foldline.apps.bot.bot_api import (
    ApiRefused,
    BotCalls,
    Button,
    Buttons,
    By,
    ChatPlace,
    Unreachable,
)
from foldline.apps.bot.html import (
    MOST,
    HtmlText,
    count_utf16_units,
    format_usage,
    render_framed_text,
    render_plain_text,
    split_text_exactly,
)
from foldline.core.edits.fold import Loss
from foldline.core.parts import Call
from foldline.draw.wording import (
    clean_line,
    escape_hidden_characters,
    escape_line,
    truncate_to_width,
)
from foldline.models.port import Model
from foldline.session.hooks import Pass
from foldline.session.session import AsyncSession

FOCUS = "Focus: "
COMPACT = Button("Compact", "compact")
PREVIEW = Button("Preview", "preview")
UNDO = Button("Undo", "undo")
REDO = Button("Redo", "redo")
COMMANDS = frozenset(button.says for button in (COMPACT, PREVIEW, UNDO, REDO))
"""What the buttons for commands say."""
_SUMMARY = 3_000  # letters of a summary in one message, whose HTML may be longer
_REASONS = {
    "forced": "the window was nearly full",
    "full": "the window was full: it could not be sent otherwise, so no yes was waited for",
    "pays": "it pays: fewer tokens are read from now on",
    "cold": "the cache was cold: it cost nothing",
    "due": "the policy's rule asked for it",
}


def render_fold_question(session: AsyncSession) -> tuple[HtmlText, Buttons]:
    """Ask a person whether to fold: a fold is due."""
    share = f"{100 * session.report.total / session.report.window:.0f}%"
    text = (
        f"⚠ Context usage at {share}. Reply /compact to summarize and continue, or keep chatting."
    )
    return render_plain_text(text), [[COMPACT, PREVIEW]]


def render_fold_notice(one: Pass) -> tuple[HtmlText, Buttons]:
    """Report a fold that was made automatically, or forbidden."""
    if one.outcome != "applied":
        return render_plain_text(f"◆ A fold was forbidden: {one.reason}"), ()
    why = _REASONS.get(one.trigger, "")
    text = f"◆ Folded: {one.before:,} → {one.after:,} tokens{f'; {why}' if why else ''}"
    return render_plain_text(text), [[UNDO]]


def render_fold_result(before: int, now: int, window: int, lost: Loss) -> tuple[HtmlText, Buttons]:
    """Report a fold that a person asked for."""
    head = f"◆ Context: {format_usage(before, window)} → {format_usage(now, window)}"
    return render_framed_text(head, str(lost)), [[UNDO]]


def render_summary(lost: Loss) -> HtmlText | None:
    """Show the newest summary, as far as it fits a message; None without one."""
    missing = f"Without a summary, {clean_line(lost.no_summary)}" if lost.no_summary else ""
    if not lost.summary:
        return render_plain_text(f"◇ {missing}") if missing else None
    lines = [clean_line(line)[:1_000] for line in lost.summary.splitlines()]
    shown = list[str]()
    for line in lines:
        if count_utf16_units("\n".join((*shown, line))) > _SUMMARY:
            shown.append(f"… {len(lines) - len(shown)} more lines")
            break
        shown.append(line)
    notes = [one for one in (lost.describe_left_out(), missing) if one]
    return render_framed_text("◆ The summary that now stands:", "\n".join((*shown, *notes)))


def render_fold_preview(lost: Loss, focus: str) -> tuple[HtmlText, Buttons]:
    """Show what a fold would do."""
    body = f"{lost}\n{FOCUS}{focus}" if focus else str(lost)
    return render_framed_text("A fold now would do this; nothing was changed:", body), [[COMPACT]]


def render_nothing_to_fold() -> tuple[HtmlText, Buttons]:
    """Say that there is nothing to fold."""
    return render_plain_text("Nothing to fold: what is there is in use, or too little."), ()


Notices: TypeAlias = Literal["off", "quiet", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The operator's rules for every chat of a bot."""

    allowed: frozenset[int] = frozenset()
    """Ids of people, and of groups (below zero) with everybody in them."""
    admins: tuple[int, ...] = ()
    """People who approve tools and change the model; they are allowed too. The first is asked
    if none of them is in the chat."""
    by: By = "chat"
    """Whether a group has one session, or one for each person."""
    notices: Notices = "quiet"
    """off: answers alone; quiet: footers, and silent notices of folds; full: also tools."""
    lease: float = 15.0
    """Seconds of a turn's lease on its session, renewed while the turn lasts: after a kill -9 the
    session waits as long."""
    again: float = 30.0
    """Seconds after which an overloaded model is asked again; doubled each time."""
    asking: float = 900.0
    """Seconds to wait for the approval of a tool."""
    look: float = 10.0
    """Seconds between two looks for what other processes have written."""
    most: int = 128
    """Idle chats that are kept open."""

    def is_allowed(self, user: int, chat: int) -> bool:
        """Whether a user may talk in a chat."""
        return user in self.allowed or user in self.admins or (chat < 0 and chat in self.allowed)


class BotSeat(Protocol):
    """An agent of one session, made by `cli/bot.py` from settings."""

    @property
    def agent(self) -> Agent:
        """The loop, with its session, its model and its tools."""
        ...

    @property
    def models(self) -> Callable[[str], Model]:
        """Makes the client of another model, for /model."""
        ...

    @property
    def approvals(self) -> Approvals | None:
        """Asks a person before something is changed."""
        ...


PREFIX = "ok:"
UNKNOWN = "This button is not known."
_LABEL = 40  # columns of a button's label; a longer rule is in the card too
_RULES = 3
_RULE = 200  # units of a rule that is offered: an admin must see all of it to agree for good
_WHAT = 300  # columns of the question's first line; what is longer is below it
_PAGE = 4_000  # units of what is asked in one message before the card, which adds a heading
_PAGES = 16  # of those messages; what needs more is not asked


@dataclass(frozen=True, slots=True)
class _Open:
    """An open question."""

    answer: "asyncio.Future[tuple[Answer, str]]"
    rules: tuple[str, ...]


@dataclass(slots=True)
class ApprovalQuestions:
    """The open questions in all chats of a bot."""

    line: BotCalls
    rules: Rules
    _open: dict[str, _Open] = field(default_factory=dict[str, _Open])

    async def ask(self, place: ChatPlace, call: Call, intent: Intent) -> Answer:
        """Ask an admin whether a tool may run; the card shows all of it."""
        where = self._choose_place(place)
        if where is None:
            return No("nobody is set to approve tools here")
        rules = _select_rules(intent)
        question = _render_question(call, intent, rules, place if where != place else None)
        token = os.urandom(6).hex()
        future: asyncio.Future[tuple[Answer, str]] = asyncio.get_running_loop().create_future()
        try:
            for page in question.pages:
                await self.line.send_message(where, page)
            if question.too_long:
                await self.line.send_message(where, question.card)
                return No(f"{question.too_long}; do it in smaller steps")
            self._open[token] = _Open(future, rules)
            buttons = _build_buttons(token, rules)
            sent = await self.line.send_message(where, question.card, buttons=buttons)
            return await self._await_answer(where, sent, question, future)
        except (ApiRefused, Unreachable, TelegramError) as fault:
            return No(f"nobody could be asked: {fault}")
        finally:
            self._open.pop(token, None)

    async def _await_answer(
        self,
        where: ChatPlace,
        card: int,
        question: "_Question",
        future: "asyncio.Future[tuple[Answer, str]]",
    ) -> Answer:
        """Wait for an answer, and write it into the card in place of its buttons."""
        answer, said = No("nobody answered in time"), "nobody answered in time: not done"
        try:
            async with asyncio.timeout(self.rules.asking):
                answer, said = await future
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            said = "stopped: not done"
            raise
        finally:
            words = render_plain_text(f"◇ {question.what}\n{said}")
            with suppress(ApiRefused, Unreachable, TelegramError):
                await self.line.edit_message(where, card, words, tries=2)
        return answer

    def handle_press(self, says: str, user: int, name: str) -> tuple[str, bool]:
        """Handle a pressed button; return what to reply, and whether as an alert."""
        if user not in self.rules.admins:
            return "Only admins decide this.", True
        token, _, which = says.removeprefix(PREFIX).partition(":")
        question = self._open.get(token)
        if question is None or question.answer.done():
            return "This question is no longer open.", True
        rules = {str(at): rule for at, rule in enumerate(question.rules)}
        if which == "yes":
            answer, said = Yes(), f"allowed once by {name}"
        elif which == "no":
            answer, said = No(), f"refused by {name}"
        elif (rule := rules.get(which)) is not None:
            answer = Yes("project", rule)
            said = f"always allowed by {name}: {escape_line(rule)}"
        else:
            return UNKNOWN, True
        question.answer.set_result((answer, said))
        return said, False

    def _choose_place(self, place: ChatPlace) -> ChatPlace | None:
        """Choose where to ask: here, or in the first admin's own chat."""
        admins = self.rules.admins
        if not admins:
            return None
        return place if not place.private or place.chat in admins else ChatPlace(admins[0])


def _select_rules(intent: Intent) -> tuple[str, ...]:
    rules = intent.rules[:_RULES]
    return tuple(rule for rule in rules if count_utf16_units(escape_line(rule)) <= _RULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A question as messages."""

    what: str
    card: HtmlText
    pages: tuple[HtmlText, ...] = ()
    """What the card has no room for; sent before it."""
    too_long: str = ""
    """Why no admin can be asked: the card would not show all of it."""


def _render_question(
    call: Call, intent: Intent, rules: tuple[str, ...], place: ChatPlace | None
) -> _Question:
    whose = f" (in {place.name})" if place else ""
    line = escape_line(intent.what) or clean_line(call.name)
    what = truncate_to_width(line, _WHAT)
    labels = [f"Always: {escape_line(rule)}" for rule in rules]
    cut = [label for label in labels if label != _cut_label(label)]
    head = "\n".join((f"◇ Allow it{whose}? {what}", *cut))
    body = escape_hidden_characters(intent.detail).strip("\n")
    if what != line:
        body = f"{line}\n\n{body}"
    if not body:
        return _Question(what=what, card=render_plain_text(head))
    if count_utf16_units(f"{head}\n{body}") <= MOST:
        return _Question(what=what, card=render_framed_text(head, body))
    parts = split_text_exactly(body, _PAGE) if len(body) <= _PAGE * _PAGES else []
    if not 0 < len(parts) <= _PAGES:
        too_long = f"it is too long to be shown before it is approved, {len(body):,} letters"
        card = render_plain_text(f"◇ Not asked, not done: {what}\n{too_long}")
        return _Question(what=what, card=card, too_long=too_long)
    pages = tuple(
        render_framed_text(f"◇ Part {at} of {len(parts)} of what is asked below", part)
        for at, part in enumerate(parts, 1)
    )
    card = render_plain_text(f"{head}\nAll of it is above, in {len(parts)} messages.")
    return _Question(what=what, card=card, pages=pages)


def _cut_label(label: str) -> str:
    return truncate_to_width(label, _LABEL)


def _build_buttons(token: str, rules: tuple[str, ...]) -> Buttons:
    always = [
        [Button(_cut_label(f"Always: {escape_line(rule)}"), f"{PREFIX}{token}:{at}")]
        for at, rule in enumerate(rules)
    ]
    first = [Button("Yes, once", f"{PREFIX}{token}:yes"), Button("No", f"{PREFIX}{token}:no")]
    return [first, *always]
