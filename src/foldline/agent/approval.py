"""Approval: ask the user before a call changes something, and remember the answers.

    approvals = Approvals(store, "ann", root="/home/ann/project", ask=prompt)
    agent = Agent(session, model, tools=own(session, root), approve=approvals)

    mode     what is done without asking
    ask      only what a rule allows
    edits    also writing files inside the root
    all      everything: the model may do whatever you may do yourself
    none     nothing: every change is refused; reading outside the root is asked about

A rule that forbids wins over everything else. Rules remembered for the project are in the store,
under the root's path; they hold in every session there until they are revoked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from time import time
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from foldline.agent.events import Calling, Moment
from foldline.agent.tool import Intent
from foldline.agent.tools.permission_rules import (
    for_path,
    is_allowed_by,
    is_forbidden_by,
    is_write_inside_root,
    kind_of,
)
from foldline.core.parts import Call
from foldline.errors import BadInput
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

SPACE = "approved"
Mode: TypeAlias = Literal["ask", "edits", "all", "none"]
Span: TypeAlias = Literal["once", "session", "project"]
MODES: tuple[Mode, ...] = ("ask", "edits", "all", "none")


class Yes(NamedTuple):
    """Allows the call; with a longer span also whatever the rule covers."""

    span: Span = "once"
    rule: str = ""
    """One of `intent.rules`; the narrowest if empty."""


class No(NamedTuple):
    """Refuses the call; the model reads why."""

    why: str = ""


Answer: TypeAlias = Yes | No
Ask: TypeAlias = Callable[[Call, Intent], Awaitable[Answer]]


class Remembered(NamedTuple):
    """A rule the user agreed to."""

    rule: str
    span: Span
    time: float


class Approvals:
    """Decides what may be done in one folder; asks, remembers and revokes."""

    def __init__(  # noqa: PLR0913 - one keyword for each setting
        self,
        store: Store,
        tenant: str,
        *,
        root: str | Path,
        ask: Ask | None,
        mode: Mode = "ask",
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
    ) -> None:
        self._store, self._name = store, Name(tenant, "")
        self._key = str(Path(root).resolve())
        self.ask = ask
        """None if no person can be asked: then only rules and modes allow actions."""
        self.mode = mode
        self.allow, self.deny = (*allow,), (*deny,)
        self._session: dict[str, float] = {}
        self._one = asyncio.Lock()  # the user is asked one thing at a time

    @property
    def mode(self) -> Mode:
        """What is done without asking."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in MODES:
            raise BadInput(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
        self._mode: Mode = mode

    async def __call__(self, call: Call, intent: Intent) -> str | None:
        """Decide about a call; returns None to allow it, else why not."""
        if why := self._find_refusal(call, intent):
            return why
        if await self._is_allowed(call, intent):
            return None
        if self.ask is None:
            return f"nobody is here to approve it: {intent.what}"
        async with self._one:
            # Checked again: an earlier answer or a change of the mode may have settled it.
            if why := self._find_refusal(call, intent):
                return why
            if await self._is_allowed(call, intent):
                return None
            answer = await self.ask(call, intent)
            if isinstance(answer, No):
                return f"the user said no: {answer.why}" if answer.why else "the user said no"
            await self._remember_answer(answer, intent)
            return None

    def refuse_denied_call(self, moment: Moment) -> str | None:
        """Hook: refuse denied calls that need no approval, such as reading inside the root."""
        if not isinstance(moment, Calling) or moment.intent is not None or not self.deny:
            return None
        names = [*map(self._format_path, moment.tool.touches(moment.arguments))]
        looks = [Intent("", "", for_path("read", name)) for name in names] or [Intent("")]
        name = moment.call.name
        for rule in self.deny:
            if any(is_forbidden_by(rule, name, look) for look in looks):
                return f"the settings forbid {rule!r}"
        return None

    def _format_path(self, path: Path) -> str:
        inside = path.is_relative_to(self._key)
        return path.relative_to(self._key).as_posix() if inside else path.as_posix()

    async def list_remembered_rules(self) -> list[Remembered]:
        """List the rules allowed for this session and the project, the newest first."""
        project = await self._read_project_rules()
        found = [Remembered(rule, "session", at) for rule, at in self._session.items()]
        found += (Remembered(rule, "project", at) for rule, at in project.items())
        return sorted(found, key=lambda one: -one.time)

    async def revoke(self, rule: str) -> bool:
        """Forget a rule, here and in every session of the project; returns whether it existed."""
        had = self._session.pop(rule, None) is not None
        gone = await self._change_project_rules(lambda rules: rules.pop(rule, None) is not None)
        return had or gone

    def _find_refusal(self, call: Call, intent: Intent) -> str | None:
        for rule in self.deny:
            if is_forbidden_by(rule, call.name, intent):
                return f"the settings forbid {rule!r}"
        if self.mode == "none" and kind_of(intent) != "read":
            return "nothing may be changed now; say what you would do instead"
        return None

    async def _is_allowed(self, call: Call, intent: Intent) -> bool:
        """Whether the mode or a rule allows the call without asking."""
        if self.mode == "all" or (self.mode == "edits" and is_write_inside_root(intent)):
            return True
        if any(is_allowed_by(one, call.name, intent) for one in (*self.allow, *self._session)):
            return True
        project = await self._read_project_rules()
        return any(is_allowed_by(one, call.name, intent) for one in project)

    async def _remember_answer(self, answer: Yes, intent: Intent) -> None:
        if answer.span == "once":
            return
        rule = answer.rule or next(iter(intent.rules), "")
        if rule not in intent.rules:
            offered = ", ".join(map(repr, intent.rules)) or "none"
            raise BadInput(f"{rule!r} is no rule for {intent.what!r}; there are: {offered}")
        now = time()
        if answer.span == "session":
            self._session[rule] = now
        else:
            await self._change_project_rules(lambda rules: rules.setdefault(rule, now) == now)

    async def _read_project_rules(self) -> dict[str, float]:
        """Read the project's rules, each time: another process may have revoked one."""
        entry = await self._store.get(self._name, SPACE, self._key)
        return _decode_rules(entry.value if entry is not None else None)

    async def _change_project_rules(self, change: Callable[[dict[str, float]], bool]) -> bool:
        """Change the rules, which other processes may change too; returns whether they changed."""

        def write(value: bytes | None) -> bytes | None:
            rules = _decode_rules(value)
            if not change(rules):
                return value
            return msgspec.json.encode(rules) if rules else None

        return await change_value(self._store, self._name, SPACE, self._key, write)


def _decode_rules(value: bytes | None) -> dict[str, float]:
    return msgspec.json.decode(value, type=dict[str, float]) if value else {}
