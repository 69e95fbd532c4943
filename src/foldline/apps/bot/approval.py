"""Tools approved by buttons: once, always by a rule, or not at all; by admins only.

Knows the questions that stand open in this process. One that was asked before a restart is not
answered by its buttons: its call was closed as interrupted, and whoever presses is told so. Where
nobody answers in time, it is refused: a turn does not hang on a person.
"""

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field

from telegram.error import TelegramError

from foldline.agent.approval import Answer, No, Yes
from foldline.agent.tool import Intent
from foldline.apps.bot.bot_api import ApiRefused, BotCalls, Button, Buttons, Unreachable
from foldline.apps.bot.html import HtmlText, framed, plainly
from foldline.apps.bot.rules import Rules
from foldline.apps.bot.session_names import ChatPlace
from foldline.core.parts import Call
from foldline.draw.text import clean, fit

PREFIX = "ok:"
_DETAIL = 2_500  # letters of a diff or a script that are shown
_RULES = 3


@dataclass(frozen=True, slots=True)
class _Open:
    """A question that waits."""

    answer: "asyncio.Future[tuple[Answer, str]]"
    rules: tuple[str, ...]
    admins: tuple[int, ...]


@dataclass(slots=True)
class ApprovalQuestions:
    """What is asked in all chats of a bot."""

    line: BotCalls
    rules: Rules
    _open: dict[str, _Open] = field(default_factory=dict[str, _Open])

    async def ask(self, place: ChatPlace, call: Call, intent: Intent) -> Answer:
        """Ask whoever may decide."""
        where = self._where(place)
        if where is None:
            return No("nobody is set to approve tools here")
        token = os.urandom(6).hex()
        rules = intent.rules[:_RULES]
        future: asyncio.Future[tuple[Answer, str]] = asyncio.get_running_loop().create_future()
        self._open[token] = _Open(future, rules, self.rules.admins)
        card = _card(call, intent, place if where != place else None)
        try:
            shown = await self.line.send(where, card, buttons=_buttons(token, rules))
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
            words = plainly(f"◇ {clean(intent.what) or call.name}\n{said}")
            with suppress(ApiRefused, Unreachable, TelegramError):
                await self.line.edit(where, shown, words, tries=2)
        return answer

    def press(self, says: str, user: int, name: str) -> tuple[str, bool]:
        """A button was pressed: what to tell, and whether loudly."""
        _, token, which = says.split(":")
        found = self._open.get(token)
        if user not in self.rules.admins:
            return "Only admins decide this.", True
        if found is None or found.answer.done():
            return "This question is no longer open.", True
        match which:
            case "yes":
                answer, said = Yes(), f"allowed once by {name}"
            case "no":
                answer, said = No(), f"refused by {name}"
            case _:
                rule = found.rules[int(which)]
                answer, said = Yes("project", rule), f"always allowed by {name}: {clean(rule)}"
        found.answer.set_result((answer, said))
        return said, False

    def _where(self, place: ChatPlace) -> ChatPlace | None:
        """Where the question is put: here, or in the first admin's own chat."""
        admins = self.rules.admins
        if not admins:
            return None
        return place if not place.private or place.chat in admins else ChatPlace(admins[0])


def _card(call: Call, intent: Intent, place: ChatPlace | None) -> HtmlText:
    whose = f" (in {place.name})" if place else ""
    head = f"◇ Allow it{whose}? {clean(intent.what) or clean(call.name)}"
    detail = intent.detail.strip("\n")
    if not detail:
        return plainly(head)
    more = f"\n… {len(detail) - _DETAIL:,} more letters" if len(detail) > _DETAIL else ""
    return framed(head, detail[:_DETAIL] + more)


def _buttons(token: str, rules: tuple[str, ...]) -> Buttons:
    always = [
        [Button(fit(f"Always: {clean(rule)}", 40), f"{PREFIX}{token}:{at}")]
        for at, rule in enumerate(rules)
    ]
    first = [Button("Yes, once", f"{PREFIX}{token}:yes"), Button("No", f"{PREFIX}{token}:no")]
    return [first, *always]
