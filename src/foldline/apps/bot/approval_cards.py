"""Notices about folds, the bot's rules, and questions to admins about tools.

Admins approve a tool by buttons: once, always by a rule, or not at all. If nobody answers in time,
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
    HtmlText,
    count_utf16_units,
    format_usage,
    render_framed_text,
    render_plain_text,
)
from foldline.core.edits.fold import Loss
from foldline.core.parts import Call
from foldline.draw.wording import clean_line, truncate_to_width
from foldline.models.port import Model
from foldline.session.hooks import Pass
from foldline.session.session import AsyncSession

FOCUS = "Focus: "
COMPACT = Button("Compact", "compact")
PREVIEW = Button("Preview", "preview")
UNDO = Button("Undo", "undo")
REDO = Button("Redo", "redo")
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
    """Show the summary that now stands, as far as one message has room; None if none was told."""
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


class Seat(Protocol):
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
_DETAIL = 2_500  # letters of a diff or a script that are shown
_RULES = 3


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
        """Ask an admin whether a tool may run."""
        where = self._choose_place(place)
        if where is None:
            return No("nobody is set to approve tools here")
        token = os.urandom(6).hex()
        rules = intent.rules[:_RULES]
        future: asyncio.Future[tuple[Answer, str]] = asyncio.get_running_loop().create_future()
        self._open[token] = _Open(future, rules)
        card = _render_question(call, intent, place if where != place else None)
        try:
            sent = await self.line.send_message(where, card, buttons=_build_buttons(token, rules))
        except (ApiRefused, Unreachable) as fault:
            self._open.pop(token)
            return No(f"nobody could be asked: {fault}")
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
            self._open.pop(token, None)
            words = render_plain_text(f"◇ {clean_line(intent.what) or call.name}\n{said}")
            with suppress(ApiRefused, Unreachable, TelegramError):
                await self.line.edit_message(where, sent, words, tries=2)
        return answer

    def handle_press(self, says: str, user: int, name: str) -> tuple[str, bool]:
        """Handle a pressed button; return what to reply, and whether as an alert."""
        _, token, which = says.split(":")
        question = self._open.get(token)
        if user not in self.rules.admins:
            return "Only admins decide this.", True
        if question is None or question.answer.done():
            return "This question is no longer open.", True
        match which:
            case "yes":
                answer, said = Yes(), f"allowed once by {name}"
            case "no":
                answer, said = No(), f"refused by {name}"
            case _:
                rule = question.rules[int(which)]
                answer, said = Yes("project", rule), f"always allowed by {name}: {clean_line(rule)}"
        question.answer.set_result((answer, said))
        return said, False

    def _choose_place(self, place: ChatPlace) -> ChatPlace | None:
        """Choose where to ask: here, or in the first admin's own chat."""
        admins = self.rules.admins
        if not admins:
            return None
        return place if not place.private or place.chat in admins else ChatPlace(admins[0])


def _render_question(call: Call, intent: Intent, place: ChatPlace | None) -> HtmlText:
    whose = f" (in {place.name})" if place else ""
    head = f"◇ Allow it{whose}? {clean_line(intent.what) or clean_line(call.name)}"
    detail = intent.detail.strip("\n")
    if not detail:
        return render_plain_text(head)
    more = f"\n… {len(detail) - _DETAIL:,} more letters" if len(detail) > _DETAIL else ""
    return render_framed_text(head, detail[:_DETAIL] + more)


def _build_buttons(token: str, rules: tuple[str, ...]) -> Buttons:
    always = [
        [Button(truncate_to_width(f"Always: {clean_line(rule)}", 40), f"{PREFIX}{token}:{at}")]
        for at, rule in enumerate(rules)
    ]
    first = [Button("Yes, once", f"{PREFIX}{token}:yes"), Button("No", f"{PREFIX}{token}:no")]
    return [first, *always]
