"""From a command line to an agent at work: settings, a session, a model, tools.

Knows how what was written on the command line, in settings and in the session itself become one
agent, and what a person is asked before a stranger's settings hold. Refuses to know how it looks:
that is `apps.chat`.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

from foldline.apps.chat.startup import ChatFace, ChatSeat
from foldline.apps.cli.context import Desk
from foldline.apps.cli.exit_codes import DONE, NothingFound
from foldline.apps.cli.store_location import MEMORY, named
from foldline.core.parts import sound
from foldline.core.view import View
from foldline.dialects.base import OPENAI
from foldline.draw.text import clean
from foldline.errors import BadInput, Busy, FoldlineError, OtherHost
from foldline.models.addresses import (
    VARIABLES,
    dialect_of,
    environment_address,
    is_same_address,
)
from foldline.models.port import Heard, Json, Model
from foldline.session.host import (
    Host,
    Named,
    agree_to_host,
    choose_host,
    host_of,
    must_be_agreed,
    record_host,
    recorded_host,
)
from foldline.session.session_list import listed
from foldline.session.stored_session import left
from foldline.settings.layers import LINE, Trusted, load
from foldline.settings.values import Held, Settings
from foldline.stores.base import Name, Store

if TYPE_CHECKING:
    from foldline.session.session import AsyncSession

_HOLD, _RENEW = 30.0, 8.0  # seconds: how long a session is ours, and how often we say so
_UNNAMED = re.compile(r"[^a-z0-9]+")
_LEFT = {"window": "model.max_input_tokens", "reserve": "model.max_output_tokens"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was written on the command line; None is not said."""

    desk: Desk
    name: str | None = None
    go_on: bool = False
    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings, by their names."""
    profile: str | None = None
    tools: bool = True
    trusted: Trusted | None = None
    """Whether a project's settings were agreed to."""
    moves: bool = True
    """Whether the command line's address was said of this session; not of one opened later."""

    async def talk(self, face: ChatFace) -> int:
        """Talk until the person leaves, in one session or several."""
        from foldline.apps.chat.conversation import Another, Talk  # noqa: PLC0415 - one message needs none

        us = asyncio.current_task()
        face.stop = us.cancel if us else None  # who leaves while it opens waits for nobody
        wish = await self.settled(face)
        name = await wish.which()
        before: str | None = None
        while True:
            face.stop = us.cancel if us else None
            try:
                async with seated(wish, name) as seat:
                    before, end = name, await Talk(seat, face).run()
            except FoldlineError as fault:
                if before is None or before == name:
                    raise
                face.above(clean(f"{fault}; {before} goes on"))
                name = before
                continue
            if not isinstance(end, Another):
                return DONE
            flags = {**self.flags, "model": seat.agent.model.name}
            wish = replace(wish, name=end.name or None, go_on=end.known, flags=flags, moves=False)
            try:
                name = await wish.which()
            except FoldlineError as fault:
                face.above(clean(f"{fault}; {before} goes on"))

    def settings(self, weaker: Mapping[str, Any] | None = None) -> Settings:
        """What is in force; `weaker` is what holds where the command line says nothing."""
        flags = {**(weaker or {}), **self.flags}
        return load(Path.cwd(), flags=flags, profile=self.profile, trusted=self.trusted)

    async def settled(self, face: ChatFace | None = None) -> "Wish":
        """The same wish where its settings say; a stranger's are asked about where one can."""
        from foldline.agent.instructions import Trust  # noqa: PLC0415 - the line is there first

        asked: dict[Path, str] = {}
        wish = self.placed(self.settings())
        async with wish.desk.store(make=True) as store:
            trust = Trust(store, tenant=wish.desk.tenant)
            await trust.load()

            def trusted(path: Path, sha: str) -> bool:
                asked[path] = sha
                return trust.exactly(path, sha)

            wish = replace(wish, trusted=trusted)
            held = wish.settings().untrusted
            if held and face is not None and await _agreed(face, held):
                for path, sha in asked.items():
                    await trust.trust(path, sha)
        return wish.placed(wish.settings())

    def placed(self, settings: Settings) -> "Wish":
        """The same wish at the store that settings name, where the command line names none."""
        desk = self.desk
        if settings.store and not desk.given:
            desk = replace(desk, address=settings.store, given=True)
        if desk.tenant == Desk("").tenant:
            desk = replace(desk, tenant=settings.tenant)
        return replace(self, desk=desk)

    async def which(self) -> str:
        """The name of the session that is meant."""
        async with self.desk.store(make=True) as store:
            if not self.go_on:
                return sound(self.name) if self.name else await _new_name(store, self.desk.tenant)
            if self.name:
                return (await named(store, self.desk.tenant, self.name)).session
            found = [one async for one in listed(store, self.desk.tenant)]
        if not found:
            raise NothingFound("there is no session to go on with; `foldline chat` begins one")
        return max(found, key=lambda one: one.changed).session


async def _agreed(face: ChatFace, held: Sequence[Held]) -> bool:
    """Whether what a folder's settings would do is wanted."""
    told = (f"{one.origin} sets {one.name} = {one.value!r}" for one in held)
    face.above("\n".join(map(clean, told)))  # whole: what is cut would be agreed to unseen
    said = await face.ask("Use what this folder's settings say? [y/N] ")
    return (said or "").strip().lower() in ("y", "yes")


async def _new_name(store: Store, tenant: str) -> str:
    """A name that nobody has yet: the folder, the day and the minute."""
    folder = _UNNAMED.sub("-", Path.cwd().name.lower()).strip("-")[:24] or "chat"
    name = f"{folder}-{strftime('%m%d-%H%M', localtime())}"
    taken = {one.session for one in await store.sessions(tenant, after=name[:-1], limit=200)}
    return next(
        one for one in (name, *(f"{name}-{at}" for at in range(2, 300))) if one not in taken
    )


class SessionTaken(Busy):
    """A session is one terminal's at a time."""

    def __init__(self, session: str) -> None:
        FoldlineError.__init__(
            self,
            f"session {session!r} is open in another terminal; leave it there first, or, if that "
            f"ended without a goodbye, wait {_HOLD:.0f} seconds",
        )


class Later:
    """A model whose SDK is imported beside what else goes on: it takes a second."""

    def __init__(self, settings: Settings, name: str, host: Host) -> None:
        self._name, self.base_url = name, host.base_url
        self._made = asyncio.ensure_future(asyncio.to_thread(_client, settings, name, host))
        self._made.add_done_callback(lambda made: made.cancelled() or made.exception())

    @property
    def name(self) -> str:
        """As the catalogue knows it."""
        return self._name

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """The whole answer to a request."""
        return await (await self.made()).say(request, heard=heard)

    async def made(self) -> Model:
        """It, once it is there; `BadInput` where it cannot be made."""
        return await asyncio.shield(self._made)

    async def close(self) -> None:
        """Let go of connections."""
        with suppress(FoldlineError):
            await (await self.made()).close()


def _client(settings: Settings, name: str, host: Host) -> Model:
    from foldline.session.use_settings import model  # noqa: PLC0415 - beside what else goes on

    made = model(replace(settings, model=replace(settings.model, name=name, base_url=host.given)))
    found = host_of(made)
    if found is not None and not is_same_address(found.base_url, host.base_url):
        raise OtherHost(  # an SDK reads profiles, too
            f"{name!r} would be asked at {found.base_url}, and not at {host.base_url}; "
            "say which with --base-url"
        )
    return made


@asynccontextmanager
async def seated(
    wish: Wish, name: str, *, alone: bool = True, sure: bool = False, store: Store | None = None
) -> AsyncGenerator[ChatSeat]:
    """An agent with that session, new or where it was left.

    Nobody else writes to it meanwhile; without `alone` whoever works with it takes it for turns.
    With `sure` nothing is written where nobody can answer: no key, or no server.
    `store` is the desk's, where somebody has it open for many sessions.
    """
    from foldline.agent.factory import agent_of  # noqa: PLC0415 - options are read without it
    from foldline.session.open import aopen  # noqa: PLC0415
    from foldline.session.stored_session import repeated  # noqa: PLC0415
    from foldline.session.use_settings import opening, tellers  # noqa: PLC0415

    settings, host = await _as_left(wish, name, store)
    clients: list[Model] = []

    def another(model: str) -> Later:
        new = Later(settings, model, choose_host(name, model, recorded=host, named=None))
        clients.append(new)
        return new

    client = another(settings.model.name or "")
    given: dict[str, Any] = {**opening(settings), "tenant": wish.desk.tenant}
    try:
        if sure:
            await client.made()
        told = tellers(settings, client, host=host)
        clients += [one for one in (told.models if told else ()) if one is not client]
        reported, notes = await _reported(settings, host, sure=sure)
        if settings.untrusted:
            held = ", ".join(sorted({one.name for one in settings.untrusted}))
            notes.append(f"not in force, for nobody has trusted this folder's settings: {held}")
        async with aopen(
            address_of(wish.desk),
            **given,
            session=name,
            exclusive=_HOLD if alone else None,
            summarizer=told,
            reported=reported,
            store=store,
        ) as opened:
            notes += await _record_host(opened, host)
            # While the person thinks, too.
            kept = repeated(_RENEW, lambda: _held(opened)) if alone else nullcontext()
            async with (
                kept,
                agent_of(
                    opened, client, settings, root=Path.cwd(), tools=wish.tools, logs=_logs()
                ) as made,
            ):
                yield ChatSeat(
                    agent=made.agent,
                    models=another,
                    instructions=made.instructions,
                    approvals=made.approvals,
                    notes=[*notes, *made.notes()],
                )
    except Busy as fault:
        raise SessionTaken(name) from fault
    finally:
        for one in clients:
            await one.close()


async def _record_host(opened: "AsyncSession", host: Host) -> list[str]:
    """Keep where a session is asked, where words were said in it; what a person should know of it.

    Of one without words the first question is recorded: it may be asked elsewhere until then.
    """
    live = opened.live
    await agree_to_host(live.store, live.name, host)
    before, changed = recorded_host(live.view.settings), record_host(live.view.settings, host)
    if changed is None or not (before or live.view.items):
        return []
    async with live.lock:
        await live.record(changed)
    if before is None:
        return [
            f"this session had no address on record; it is asked at {host.base_url} from here on"
        ]
    return [f"moved from {before.base_url}: this session is asked at {host.base_url} from here on"]


async def _reported(settings: Settings, host: Host, *, sure: bool) -> tuple[Any, list[str]]:
    """What a server of one's own says of its model, where nobody has said how large it is."""
    address = host.given if settings.model.base_url or host.dialect == OPENAI.name else None
    if not address or settings.model.max_input_tokens is not None:
        return None, []
    from foldline.apps.cli.reachable import unreached  # noqa: PLC0415 - few have a server
    from foldline.models.servers import ask  # noqa: PLC0415

    found = await ask(address, settings.model.name or "")
    if found is not None and found.window is not None:
        return found, []
    why = await unreached(address, option="--base-url") if found is None else ""
    if why and sure:
        raise BadInput(why)
    if why:
        return None, [why]
    return found, [f"{host.base_url} does not say how large its window is; --window says it"]


async def _as_left(wish: Wish, name: str, store: Store | None) -> tuple[Settings, Host]:
    """The settings, and where the command line says nothing, as the session was left.

    Also where its model is asked; `OtherHost` where that is not where its log says.
    """
    async with wish.desk.store(make=True) if store is None else nullcontext(store) as there:
        seen = await left(there, Name(wish.desk.tenant, name))
        settings = _settings_of(wish, seen.live.view)
        if settings.model.name is None:
            raise BadInput(
                "which model? write --model NAME, for example --model claude-sonnet-5.5; a server "
                "of your own: --base-url http://127.0.0.1:8080/v1 --model NAME; or "
                '`model = "NAME"` into foldline.toml'
            )
        named = _named_address(wish, settings)
        recorded = recorded_host(seen.live.view.settings)
        host = choose_host(name, settings.model.name, recorded=recorded, named=named)
        if named is None:
            await must_be_agreed(there, seen.live.name, host)
    return settings, host


def _named_address(wish: Wish, settings: Settings) -> Named | None:
    """The address that the command line, settings or the environment name, the first of them."""
    if said := settings.model.base_url:
        origin = settings.origins["model.base_url"]
        return Named(said, origin, is_explicit=origin == LINE and wish.moves)
    dialect = dialect_of(settings.model.name or "")
    found = environment_address(dialect)
    return None if found is None else Named(found, f"env {VARIABLES[dialect]}")


def _settings_of(wish: Wish, view: View) -> Settings:
    settings = wish.settings()
    if view.head < 0:
        return settings
    was = {named: view.settings.get(key) for key, named in _LEFT.items()}
    was["model"] = view.model or None
    if "policy" not in settings.origins:
        was["policy"] = view.settings.get("policy")
    return wish.settings({key: one for key, one in was.items() if one})


def _logs() -> Path:
    """Where servers complain."""
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder) / "foldline" / "mcp"


async def _held(opened: "AsyncSession") -> None:
    """The session is ours for as long again, and as another may have left it."""
    async with opened.live.lock:
        await opened.live.hold(_HOLD)


def address_of(desk: Desk) -> str:
    """Where a desk's sessions are, for `foldline.open`."""
    plain = desk.address == MEMORY or "://" in desk.address
    return desk.address if plain else str(Path(desk.address).expanduser())
