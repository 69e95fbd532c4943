"""Build an agent from the command line, the settings and the session: `Wish`, `open_agent`.

Options win over settings, settings over what the session was left with. Settings of a project that
nobody has trusted are asked about first. How it looks is up to `apps.chat`.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

from msgspec import structs

from foldline.apps.chat.chat_parts import ChatFace, ChatSeat, RecentSession, render_recent_sessions
from foldline.apps.cli.context import MEMORY, Desk, find_checkpoints, resolve_session_name
from foldline.apps.cli.exit_codes import DONE, NothingFound, ServerSilent
from foldline.apps.cli.saved_keys import explain_key, find_saved_key
from foldline.core.log import ModelSaid, by_user
from foldline.core.own_words import read_own_words
from foldline.core.parts import replace_surrogates
from foldline.core.spine import Range
from foldline.core.view import View
from foldline.dialects.base import CHAT, choose_model_dialect
from foldline.dialects.model_names import find_address_provider
from foldline.draw.wording import clean_line
from foldline.errors import BadInput, Busy, Erased, FoldlineError, ModelFailed, OtherHost
from foldline.models.clients import environment_address, is_same_address
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
from foldline.session.stored_session import (
    hold_stored_session,
    iterate_sessions,
    open_stored_session,
)
from foldline.settings.layers import LINE, Trusted, load_settings
from foldline.settings.tree import Settings, UntrustedSetting
from foldline.stores.base import Name, Store

if TYPE_CHECKING:
    from foldline.session.session import AsyncSession

_HOLD, _RENEW = 30.0, 8.0  # seconds: how long a session's lock lasts, how often it is renewed
_CLAIM = 7_200.0  # seconds that a new name stays claimed: longer than a clock is ever set back
_RECENT, _FIRST = 6, 40  # sessions offered; events in which a title is looked for
_OF_A_MODEL = ("model", "model.name", "model.max_input_tokens", "model.max_output_tokens")
_UNNAMED = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command line says; None is not said."""

    desk: Desk
    name: str | None = None
    go_on: bool = False
    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings by name."""
    profile: str | None = None
    config: Path | None = None
    """A file that is read instead of the project's, and trusted."""
    tools: bool = True
    trusted: Trusted | None = None
    """Tells whether a person has trusted a project's settings."""
    moves: bool = True
    """Whether the command line's address and model are meant for this session: not for one opened
    later."""
    model: str | None = None
    """Who answers in a new session that is opened later."""
    carry: str | None = None
    """An earlier session whose record opens a new one."""
    parts: tuple[str, ...] | None = None
    """What of that record; None: all."""

    async def run_chat(self, face: ChatFace) -> int:
        """Chat until the person leaves, in one session or several."""
        us = asyncio.current_task()
        face.stop = us.cancel if us else None  # leaving while it opens ends it at once
        wish = await self.resolve_trust(face)
        wish = await wish.ask_for_model(face)
        begun: list[str] = []
        try:
            return await _chat_in_sessions(wish, face, begun)
        finally:
            await erase_unused_sessions(wish.desk, begun)

    @property
    def is_nameless(self) -> bool:
        """Whether it is a new session, with a name that we choose."""
        return not (self.name or self.go_on)

    async def list_recent_sessions(self) -> list[RecentSession]:
        """List the sessions that were changed last."""
        async with self.desk.open_store(make=True) as store:
            every = [one async for one in iterate_sessions(store, self.desk.tenant)]
            every.sort(key=lambda one: one.changed, reverse=True)
            found: list[RecentSession] = []
            for one in every:
                if len(found) == _RECENT:
                    break
                with suppress(FoldlineError):
                    seen = await open_stored_session(store, Name(self.desk.tenant, one.session))
                    first = await seen.live.read_events(Range(0, min(one.head, _FIRST)))
                    said = (read_own_words(event.parts) for _, event in first if by_user(event))
                    title = next(filter(None, said), "")
                    model = seen.live.view.model
                    if title:  # in the others nobody has said anything
                        found.append(
                            RecentSession(one.session, title, one.changed, one.size, model)
                        )
        return found

    async def ask_for_model(self, face: ChatFace) -> "Wish":
        """Ask who answers, if nothing says it: on the first run, and in a session of old."""
        if self.load_settings().model.name is not None:
            return self
        recent = await self.list_recent_sessions()
        if self.go_on or (self.name and any(one.name == self.name for one in recent)):
            return self
        if self.name:
            async with self.desk.open_store(make=True) as store:
                seen = await open_stored_session(store, Name(self.desk.tenant, self.name))
                if seen.live.view.model:
                    return self
        elif recent:
            face.above("\n".join(render_recent_sessions(recent)))
            said = (await face.ask("Which? [number; Enter sets a new model up] ") or "").strip()
            if said.isdecimal() and 0 < int(said) <= len(recent):
                return replace(self, name=recent[int(said) - 1].name, go_on=True)
        from foldline.apps.cli.first_run import set_up_model  # noqa: PLC0415 - once in a life

        await set_up_model(face)
        return self

    def load_settings(self) -> Settings:
        """Load the settings in force."""
        return load_settings(
            Path.cwd(),
            flags=self.flags,
            profile=self.profile,
            config=self.config,
            trusted=self.trusted,
        )

    async def resolve_trust(self, face: ChatFace | None = None) -> "Wish":
        """Apply the settings; ask about those of an untrusted project if there is a `face`."""
        from foldline.agent.instructions import Trust  # noqa: PLC0415 - the input line starts first

        asked: dict[Path, str] = {}
        wish = self.apply_settings(self.load_settings())
        async with wish.desk.open_store(make=True) as store:
            trust = Trust(store, tenant=wish.desk.tenant)
            await trust.load()

            def is_trusted(path: Path, sha: str) -> bool:
                asked[path] = sha
                return trust.is_exactly_trusted(path, sha)

            wish = replace(wish, trusted=is_trusted)
            held = wish.load_settings().untrusted
            if held and face is not None and await _ask_to_trust(face, held):
                for path, sha in asked.items():
                    await trust.allow_file(path, sha)
        return wish.apply_settings(wish.load_settings())

    def apply_settings(self, settings: Settings) -> "Wish":
        """Use the store and tenant of the settings where the command line names none."""
        desk = self.desk
        if settings.store and not desk.given:
            desk = replace(desk, address=settings.store, given=True)
        if desk.tenant == Desk("").tenant:
            desk = replace(desk, tenant=settings.tenant)
        return replace(self, desk=desk)

    async def choose_session_name(self) -> str:
        """Return the name of a new session, of the one named, or of the last changed one."""
        tenant = self.desk.tenant
        async with self.desk.open_store(make=True) as store:
            if self.go_on and self.name:
                return (await resolve_session_name(store, tenant, self.name)).session
            if self.name:
                return replace_surrogates(self.name)
            if not self.go_on:
                return await _claim_new_name(store, tenant)
            found = [one async for one in iterate_sessions(store, tenant)]
        if not found:
            raise NothingFound("there is no session to go on with; `foldline chat` begins one")
        return max(found, key=lambda one: one.changed).session


async def _chat_in_sessions(wish: Wish, face: ChatFace, begun: list[str]) -> int:
    """Chat in one session after the other; adds those that got a new name to `begun`."""
    from foldline.apps.chat.chat_loop import SessionChange, Talk  # noqa: PLC0415 - one message needs none

    us = asyncio.current_task()
    name = await wish.choose_session_name()
    recent = await wish.list_recent_sessions() if wish.is_nameless else []
    begun += [name] if wish.is_nameless else []
    before: str | None = None
    while True:
        face.stop = us.cancel if us else None
        try:
            async with open_agent(wish, name) as seat:
                before, end = name, await Talk(seat, face, recent=recent).run()
        except FoldlineError as fault:
            if before is None or before == name:
                raise
            face.above(clean_line(f"{fault}; {before} goes on"))
            name = before
            continue
        if not isinstance(end, SessionChange):
            return DONE
        recent = []
        wish = replace(
            wish,
            name=end.name or None,
            go_on=end.known,
            moves=False,
            model=seat.agent.model.name,
            carry=None,
            parts=None,
        )
        try:
            name = await wish.choose_session_name()
            begun += [name] if wish.is_nameless else []
        except FoldlineError as fault:
            face.above(clean_line(f"{fault}; {before} goes on"))


def list_untrusted(settings: Settings) -> list[str]:
    """Return a note about settings that are not in force, if there are any."""
    held = ", ".join(sorted({one.name for one in settings.untrusted}))
    return [f"not in force, for nobody has trusted this folder's settings: {held}"] if held else []


async def _ask_to_trust(face: ChatFace, held: Sequence[UntrustedSetting]) -> bool:
    lines = (f"{one.origin} sets {one.name} = {one.value!r}" for one in held)
    face.above("\n".join(map(clean_line, lines)))  # not cut: a cut part would be agreed to unseen
    answer = await face.ask("Use what this folder's settings say? [y/N] ")
    return (answer or "").strip().lower() in ("y", "yes")


async def _claim_new_name(store: Store, tenant: str) -> str:
    """Claim an unused name, made from the folder, the day and the minute.

    Two processes that begin in the same minute never get the same name.
    """
    folder = _UNNAMED.sub("-", Path.cwd().name.lower()).strip("-")[:24] or "chat"
    begin = f"{folder}-{strftime('%m%d-%H%M', localtime())}"
    number, name = 1, Name(tenant, begin)
    while True:
        with suppress(Erased):  # a name that was erased stays unused
            claimed = await store.put(name, "chat", "name", b"", version=0, seconds=_CLAIM)
            if claimed and (await store.head(name)).seq < 0:
                return name.session
        number += 1
        name = Name(tenant, f"{begin}-{number}")


async def erase_unused_sessions(desk: Desk, names: Sequence[str]) -> None:
    """Erase those of the sessions in which nothing is left that was said, and nothing answered."""
    if not names:
        return
    with suppress(FoldlineError):  # an empty session in the list is no reason to fail
        async with desk.open_store() as store:
            for name in names:
                await _erase_if_unused(store, Name(desk.tenant, name))


async def _erase_if_unused(store: Store, name: Name) -> None:
    """Erase a session unless something stands in it, or somebody else has it open."""
    seen = await open_stored_session(store, name)
    if seen.live.view.head < 0:
        return
    async with hold_stored_session(seen):
        live = seen.live
        if live.view.items or live.view.head > _FIRST:
            return
        events = await live.read_events(Range(0, live.view.head))
        if not any(isinstance(event, ModelSaid) for _, event in events):
            await store.erase(name)


class SessionTaken(Busy):
    """Another terminal has the session open."""

    def __init__(self, session: str) -> None:
        FoldlineError.__init__(
            self,
            f"session {session!r} is open in another terminal; leave it there first, or, if that "
            f"ended without a goodbye, wait {_HOLD:.0f} seconds",
        )


class Later:
    """A model whose SDK is imported in a thread meanwhile: that takes a second."""

    def __init__(self, settings: Settings, name: str, host: Host) -> None:
        self._name, self.base_url = name, host.base_url
        self._settings, self._host = settings, host
        self._key: str | None = None
        self._made = self._start_making()

    def _start_making(self) -> asyncio.Future[Model]:
        made = asyncio.ensure_future(asyncio.to_thread(self._make_client))
        made.add_done_callback(lambda made: made.cancelled() or made.exception())
        return made

    def _make_client(self) -> Model:
        self._key = find_saved_key(self.base_url)
        return _build_client(self._settings, self._name, self._host, self._key)

    @property
    def name(self) -> str:
        """The model's name in the catalogue."""
        return self._name

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """Return the whole answer to a request; a saved key that was refused is read again."""
        try:
            return await (await self.wait_for_model()).say(request, heard=heard)
        except ModelFailed as failed:
            if failed.fault.kind != "auth":
                raise
            if await asyncio.to_thread(find_saved_key, self.base_url) == self._key:
                raise
        await self.close()
        self._made = self._start_making()
        return await (await self.wait_for_model()).say(request, heard=heard)

    async def wait_for_model(self) -> Model:
        """Return the client once it is made; raises `BadInput` if it cannot be."""
        return await asyncio.shield(self._made)

    async def close(self) -> None:
        """Close the client's connections."""
        with suppress(FoldlineError):
            await (await self.wait_for_model()).close()


def _build_client(settings: Settings, name: str, host: Host, saved_key: str | None) -> Model:
    from foldline.session.use_settings import make_model_client  # noqa: PLC0415 - in a thread

    client = make_model_client(
        structs.replace(
            settings, model=structs.replace(settings.model, name=name, base_url=host.given)
        ),
        saved_key=saved_key,
    )
    found = host_of(client)
    if found is not None and not is_same_address(found.base_url, host.base_url):
        raise OtherHost(  # SDKs read profiles of their own, too
            f"{name!r} would be asked at {found.base_url}, and not at {host.base_url}; "
            "say which with --base-url"
        )
    return client


@asynccontextmanager
async def open_agent(
    wish: Wish, name: str, *, alone: bool = True, sure: bool = False, store: Store | None = None
) -> AsyncGenerator[ChatSeat]:
    """Open an agent with that session, new or where it was left.

    The session is locked meanwhile; without `alone`, only during turns. With `sure`, nothing is
    written if nobody can answer: no key, or no server. `store` is the desk's store if the caller
    has it open for many sessions.
    """
    from foldline.agent.factory import agent_of  # noqa: PLC0415 - reading options needs none of it
    from foldline.session.open import aopen  # noqa: PLC0415
    from foldline.session.stored_session import run_repeatedly  # noqa: PLC0415
    from foldline.session.use_settings import build_open_arguments, build_tellers  # noqa: PLC0415

    settings, host, carry = await _as_left(wish, name, store)
    clients: list[Model] = []

    def make_client(model: str) -> Later:
        new = Later(settings, model, choose_host(name, model, recorded=host, named=None))
        clients.append(new)
        return new

    client = make_client(settings.model.name or "")
    given: dict[str, Any] = {**build_open_arguments(settings), "tenant": wish.desk.tenant}
    try:
        if sure:
            await client.wait_for_model()
        tellers = build_tellers(
            settings, client, host=host, saved_key=find_saved_key(host.base_url)
        )
        clients += [one for one in (tellers.models if tellers else ()) if one is not client]
        reported, notes = await _ask_server_limits(settings, host, sure=sure)
        notes += list_untrusted(settings)
        async with aopen(
            address_of(wish.desk),
            **given,
            session=name,
            carry=carry,
            parts=wish.parts if carry else None,
            exclusive=_HOLD if alone else None,
            summarizer=tellers,
            reported=reported,
            store=store,
        ) as opened:
            notes += await _record_host(opened, host)
            notes += _describe_carried(wish, name, opened)
            # The lock must not run out while the person thinks.
            held = run_repeatedly(_RENEW, lambda: _extend_hold(opened)) if alone else nullcontext()
            async with (
                held,
                agent_of(
                    opened,
                    client,
                    settings,
                    root=Path.cwd(),
                    tools=wish.tools,
                    logs=_resolve_log_folder(),
                    checkpoints=_choose_checkpoint_folder(wish.desk, name) if alone else None,
                ) as made,
            ):
                yield ChatSeat(
                    agent=made.agent,
                    models=make_client,
                    instructions=made.instructions,
                    approvals=made.approvals,
                    checkpoints=made.checkpoints,
                    list_models=partial(_list_models, settings, host),
                    explain_key=partial(_explain_key, settings, host),
                    notes=[*notes, *made.list_notes()],
                )
    except Busy as fault:
        raise SessionTaken(name) from fault
    finally:
        for one in clients:
            await one.close()


def _describe_carried(wish: Wish, name: str, opened: "AsyncSession") -> list[str]:
    """Say what was carried on, and how large it is."""
    if opened.carried is not None:
        return [f"carried on: {opened.carried}"]
    if wish.carry is None:
        return []
    return [f"{name} has begun already, and nothing was carried; /carry {wish.carry} takes it in"]


async def _record_host(opened: "AsyncSession", host: Host) -> list[str]:
    """Record the session's host if it changed; return notes for the person.

    An empty session is not written to: its first request records the host.
    """
    live = opened.live
    await agree_to_host(live.store, live.name, host)
    before, changed = recorded_host(live.view.settings), record_host(live.view.settings, host)
    if changed is None or not (before or live.view.items):
        return []
    async with live.lock:
        await live.record_events(changed)
    if before is None:
        return [
            f"this session had no address on record; it is asked at {host.base_url} from here on"
        ]
    return [f"moved from {before.base_url}: this session is asked at {host.base_url} from here on"]


async def _ask_server_limits(
    settings: Settings, host: Host, *, sure: bool
) -> tuple[Any, list[str]]:
    """Ask a server of one's own for its model's limits, if no setting names them."""
    address = host.given if settings.model.base_url or host.dialect == CHAT else None
    if not address or settings.model.max_input_tokens is not None:
        return None, []
    from foldline.apps.cli.doctor import explain_unreachable  # noqa: PLC0415 - few have a server
    from foldline.models.servers import ask  # noqa: PLC0415

    found = await ask(address, settings.model.name or "")
    if found is not None and found.window is not None:
        return found, []
    why = await explain_unreachable(address, option="--base-url") if found is None else ""
    if why and sure:
        raise ServerSilent(why)
    if why:
        return None, [why]
    problem = f"{host.base_url} does not say how large its window is"
    return found, [f"{problem}; --set model.max_input_tokens=TOKENS does"]


async def _as_left(wish: Wish, name: str, store: Store | None) -> tuple[Settings, Host, str | None]:
    """Return the settings, completed by what the session was left with, and its model's host.

    Also the session that a new one carries on. Raises `OtherHost` if the host is not the one in the
    session's log, or in the log of the session that is carried on.
    """
    async with wish.desk.open_store(make=True) if store is None else nullcontext(store) as there:
        seen = await open_stored_session(there, Name(wish.desk.tenant, name))
        carried: AsyncSession | None = None
        if wish.carry is not None and seen.live.view.head < 0:
            earlier = await resolve_session_name(there, wish.desk.tenant, wish.carry)
            carried = await open_stored_session(there, earlier)
        origin = (carried or seen).live
        settings = _settings_of(wish, origin.view)
        if settings.model.name is None:
            raise BadInput(
                "which model? write --model NAME, for example --model claude-sonnet-5.5; a server "
                "of your own: --base-url http://127.0.0.1:8080/v1 --model NAME; or "
                '`model = "NAME"` into foldline.toml'
            )
        named = _named_address(wish, settings)
        recorded = recorded_host(origin.view.settings)
        host = choose_host(origin.name.session, settings.model.name, recorded=recorded, named=named)
        if named is None:
            await must_be_agreed(there, origin.name, host)
    return settings, host, None if carried is None else carried.live.name.session


def _named_address(wish: Wish, settings: Settings) -> Named | None:
    """Return the address that the command line, the settings or the environment names."""
    if said := settings.model.base_url:
        origin = settings.origins["model.base_url"]
        return Named(said, origin, is_explicit=origin == LINE and wish.moves)
    vendor = choose_model_dialect(settings.model.name or "").vendor
    found = environment_address(vendor)
    return None if found is None else Named(found, f"env {vendor.variable}")


def _settings_of(wish: Wish, view: View) -> Settings:
    """Return the settings for a session; its model stays, unless the command line names another.

    The command line names the model of the first session, and not of one that is opened later.
    """
    from foldline.session.session_settings import resolve_session_settings  # noqa: PLC0415 - as above

    settings = wish.load_settings()
    named = settings.model.name or ""
    is_said = wish.moves and settings.origins.get("model.name") == LINE
    model = named if is_said else view.model or wish.model or named
    if not wish.moves and model != named:  # the command line's window is another model's
        flags = {key: one for key, one in wish.flags.items() if key not in _OF_A_MODEL}
        settings = replace(wish, flags=flags).load_settings()
    return resolve_session_settings(settings, model, view.settings)


def _resolve_log_folder() -> Path:
    """Return the folder for the logs of MCP servers."""
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder) / "foldline" / "mcp"


async def _list_models(settings: Settings, host: Host) -> list[str]:
    """Ask the session's server which models it has."""
    from foldline.models.servers import fetch_model_names  # noqa: PLC0415 - few ask
    from foldline.session.use_settings import read_api_key  # noqa: PLC0415

    vendor = choose_model_dialect(settings.model.name or "").vendor.name
    variable = _find_key_variable(vendor, host)
    key = read_api_key(settings) or os.environ.get(variable) or find_saved_key(host.base_url)
    return await asyncio.to_thread(fetch_model_names, host.base_url, key=key or "", vendor=vendor)


def _find_key_variable(vendor: str, host: Host) -> str:
    """Return the environment's variable for the key of a host."""
    served = find_address_provider(host.base_url)
    variables = {"anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY"}
    return (served.variable if served else "") or variables.get(vendor, "OPENAI_API_KEY")


def _explain_key(settings: Settings, host: Host) -> str:
    """Say where to correct the key of a session's host."""
    if settings.model.key_env is not None:
        return f"correct {settings.model.key_env} in the environment"
    vendor = choose_model_dialect(settings.model.name or "").vendor.name
    return explain_key(host.base_url, _find_key_variable(vendor, host))


def _choose_checkpoint_folder(desk: Desk, name: str) -> Path:
    """Return the folder for a session's checkpoints of this working folder."""
    here = sha256(os.fsencode(Path.cwd().resolve())).hexdigest()[:16]
    return find_checkpoints(desk, name) / here


async def _extend_hold(opened: "AsyncSession") -> None:
    async with opened.live.lock:
        await opened.live.hold_lease(_HOLD)


def address_of(desk: Desk) -> str:
    """Return the address of a desk's store, for `foldline.open`."""
    plain = desk.address == MEMORY or "://" in desk.address
    return desk.address if plain else str(Path(desk.address).expanduser())
