"""Approval: who decides before something is changed, and what was decided for good.

    approvals = Approvals(store, "ann", root="/home/ann/project", ask=prompt)
    agent = Agent(session, model, tools=own(session, root), approve=approvals)

    mode     what is not asked about
    ask      nothing, but for what a rule allows
    edits    writing files inside of the root
    all      anything: whatever the model calls for is done, with all that you may do yourself
    none     whatever changes something is refused; looking outside of the root is asked about

Knows modes, rules and answers. A rule that forbids wins over all else, a rule of the settings is
looked at before what was remembered. What is remembered for the project is in the store, under the
root's path, with the time; it holds until it is revoked, in every session there. Refuses to know
how a person is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from time import time
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from foldline.agent.events import Calling, Moment
from foldline.agent.tool import Intent
from foldline.agent.tools.rules import covers, for_path, forbids, inside, kind_of
from foldline.core.parts import Call
from foldline.errors import BadInput, StoreFailed
from foldline.stores.base import Name, Store

SPACE = "approved"
_TRIES = 100  # of writing what others write too
_PAUSE = 0.002  # seconds, and longer the more often another was first
Mode: TypeAlias = Literal["ask", "edits", "all", "none"]
Span: TypeAlias = Literal["once", "session", "project"]
MODES: tuple[Mode, ...] = ("ask", "edits", "all", "none")


class Yes(NamedTuple):
    """It may be done: once, or from now on whatever one rule of the intent covers."""

    span: Span = "once"
    rule: str = ""
    """One of `intent.rules`; the narrowest where it is empty."""


class No(NamedTuple):
    """It must not be done, and why, for the model to read."""

    why: str = ""


Answer: TypeAlias = Yes | No
Ask: TypeAlias = Callable[[Call, Intent], Awaitable[Answer]]


class Remembered(NamedTuple):
    """A rule that somebody agreed to."""

    rule: str
    span: Span
    time: float


class Approvals:
    """What may be done in one folder: asked, remembered, listed, revoked."""

    def __init__(  # noqa: PLR0913 - where, who is asked, and what is settled already
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
        """None where nobody can be asked: then only rules and modes let something through."""
        self.mode = mode
        self.allow, self.deny = (*allow,), (*deny,)
        self._session: dict[str, float] = {}
        self._one = asyncio.Lock()  # a person is asked one thing at a time

    @property
    def mode(self) -> Mode:
        """What is not asked about."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in MODES:
            raise BadInput(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
        self._mode: Mode = mode

    async def __call__(self, call: Call, intent: Intent) -> str | None:
        """Why a call must not be run; None where it may."""
        if why := self._refused(call, intent):
            return why
        if await self._settled(call, intent):
            return None
        if self.ask is None:
            return f"nobody is here to approve it: {intent.what}"
        async with self._one:
            # Asked again: the answer before this one, or a change of the mode, may have settled it.
            if why := self._refused(call, intent):
                return why
            if await self._settled(call, intent):
                return None
            answer = await self.ask(call, intent)
            if isinstance(answer, No):
                return f"the user said no: {answer.why}" if answer.why else "the user said no"
            await self._remember(answer, intent)
            return None

    def watch(self, moment: Moment) -> str | None:
        """A hook: what nobody is asked about, as looking inside the root, may be forbidden too."""
        if not isinstance(moment, Calling) or moment.intent is not None or not self.deny:
            return None
        names = [*map(self._named, moment.tool.touches(moment.arguments))]
        looks = [Intent("", "", for_path("read", name)) for name in names] or [Intent("")]
        name = moment.call.name
        found = (rule for rule in self.deny for one in looks if forbids(rule, name, one))
        rule = next(found, None)
        return None if rule is None else f"the settings forbid {rule!r}"

    def _named(self, path: Path) -> str:
        inside = path.is_relative_to(self._key)
        return path.relative_to(self._key).as_posix() if inside else path.as_posix()

    async def remembered(self) -> list[Remembered]:
        """What is allowed for this session and for the project, the newest first."""
        project, _ = await self._project()
        found = [Remembered(rule, "session", at) for rule, at in self._session.items()]
        found += (Remembered(rule, "project", at) for rule, at in project.items())
        return sorted(found, key=lambda one: -one.time)

    async def revoke(self, rule: str) -> bool:
        """Ask again from now on, here and in every session of the project; whether it was there."""
        had = self._session.pop(rule, None) is not None
        gone = await self._change(lambda rules: rules.pop(rule, None) is not None)
        return had or gone

    def _refused(self, call: Call, intent: Intent) -> str | None:
        if rule := next((one for one in self.deny if forbids(one, call.name, intent)), None):
            return f"the settings forbid {rule!r}"
        if self.mode == "none" and kind_of(intent) != "read":
            return "nothing may be changed now; say what you would do instead"
        return None

    async def _settled(self, call: Call, intent: Intent) -> bool:
        """Whether it may be done without a word."""
        if self.mode == "all" or (self.mode == "edits" and inside(intent)):
            return True
        if any(covers(one, call.name, intent) for one in (*self.allow, *self._session)):
            return True
        project, _ = await self._project()
        return any(covers(one, call.name, intent) for one in project)

    async def _remember(self, answer: Yes, intent: Intent) -> None:
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
            await self._change(lambda rules: rules.setdefault(rule, now) == now)

    async def _project(self) -> tuple[dict[str, float], int]:
        """The rules of the project, read each time: another process may have revoked one."""
        entry = await self._store.get(self._name, SPACE, self._key)
        if entry is None:
            return {}, 0
        return msgspec.json.decode(entry.value, type=dict[str, float]), entry.version

    async def _change(self, change: Callable[[dict[str, float]], bool]) -> bool:
        """Write what becomes of the rules, whoever else writes them; whether anything changed."""
        for tried in range(_TRIES):
            rules, version = await self._project()
            if not change(rules):
                return False
            body = msgspec.json.encode(rules) if rules else None
            if await self._store.put(self._name, SPACE, self._key, body, version=version):
                return True
            await asyncio.sleep(min(_PAUSE * tried, 0.05))
        raise StoreFailed(f"the rules of {self._key!r} are written by too many at once")
