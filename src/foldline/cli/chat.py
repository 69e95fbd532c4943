"""`chat`: talk with a model in a terminal, for as long as you like.

Knows how what was written on the command line becomes an agent with a session, and which of the
three ways to talk there is: a terminal, a plain one, or one message. Refuses to know how it looks:
that is `repl`.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from foldline.cli.codes import DONE, NothingFound
from foldline.cli.desk import Desk, StoreOption, TenantOption, desk
from foldline.cli.output import remark
from foldline.cli.place import MEMORY, named, session
from foldline.cli.repl import door
from foldline.cli.repl.seat import Face, Seat
from foldline.core.parts import Call, sound
from foldline.core.policy import named as preset
from foldline.draw.text import clean
from foldline.errors import BadInput, Busy, FoldlineError
from foldline.models.port import Heard, Json, Model
from foldline.run.listed import listed
from foldline.store.base import Name, Store

if TYPE_CHECKING:
    from foldline.agent.loop import Approve
    from foldline.agent.moments import Moment
    from foldline.agent.tool import Intent
    from foldline.run.session import AsyncSession

Start = Literal["auto", "ask", "manual"]
_HOLD, _RENEW = 30.0, 8.0  # seconds: how long a session is ours, and how often we say so
_UNNAMED = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was written on the command line; None is not said."""

    desk: Desk
    name: str | None = None
    go_on: bool = False
    model: str | None = None
    base_url: str | None = None
    window: int | None = None
    reserve: int | None = None
    policy: str | None = None
    start: Start | None = None
    summarizer: str | None = None
    rounds: int = 25

    async def talk(self, face: Face) -> int:
        """Talk until the person leaves, in one session or several."""
        from foldline.cli.repl.talk import Another, Talk  # noqa: PLC0415 - one message needs none

        name, wish = await self.which(), self
        before: str | None = None
        while True:
            try:
                async with seated(wish, name, face) as seat:
                    before, end = name, await Talk(seat, face).run()
            except FoldlineError as fault:
                if before is None or before == name:
                    raise
                face.above(clean(f"{fault}; {before} goes on"))
                name = before
                continue
            if not isinstance(end, Another):
                return DONE
            wish = replace(
                self, name=end.name or None, go_on=end.known, model=seat.agent.model.name
            )
            try:
                name = await wish.which()
            except FoldlineError as fault:
                face.above(clean(f"{fault}; {before} goes on"))

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


async def _new_name(store: Store, tenant: str) -> str:
    """A name that nobody has yet: the folder, the day and the minute."""
    folder = _UNNAMED.sub("-", Path.cwd().name.lower()).strip("-")[:24] or "chat"
    name = f"{folder}-{strftime('%m%d-%H%M', localtime())}"
    taken = {one.session for one in await store.sessions(tenant, after=name[:-1], limit=200)}
    return next(
        one for one in (name, *(f"{name}-{at}" for at in range(2, 300))) if one not in taken
    )


class Taken(Busy):
    """A session is one terminal's at a time."""

    def __init__(self, session: str) -> None:
        FoldlineError.__init__(
            self,
            f"session {session!r} is open in another terminal; leave it there first, or, if that "
            f"ended without a goodbye, wait {_HOLD:.0f} seconds",
        )


class Later:
    """A model whose SDK is imported beside what else goes on: it takes a second."""

    def __init__(self, name: str, *, base_url: str | None = None) -> None:
        self._name = name
        self._made = asyncio.ensure_future(asyncio.to_thread(_client, name, base_url))
        self._made.add_done_callback(lambda made: made.cancelled() or made.exception())

    @property
    def name(self) -> str:
        """As the catalogue knows it."""
        return self._name

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """The whole answer to a request."""
        model = await asyncio.shield(self._made)
        return await model.say(request, heard=heard)

    async def close(self) -> None:
        """Let go of connections."""
        with suppress(FoldlineError):
            await (await asyncio.shield(self._made)).close()


def _client(name: str, base_url: str | None) -> Model:
    from foldline.models.clients import client  # noqa: PLC0415 - beside what else goes on

    return client(name, base_url=base_url)


@asynccontextmanager
async def seated(wish: Wish, name: str, face: Face | None = None) -> AsyncGenerator[Seat]:
    """An agent with that session, new or where it was left; nobody else writes to it meanwhile."""
    from foldline.agent.loop import Agent  # noqa: PLC0415 - options are read without it
    from foldline.run.open import aopen  # noqa: PLC0415

    wish = await _as_left(wish, name)
    if wish.model is None:
        raise BadInput(
            "which model? write --model NAME, for example --model claude-sonnet-5.5; a server of "
            "your own: --base-url http://127.0.0.1:8080/v1 --model NAME"
        )
    model, notes = wish.model, list[str]()
    teller = Later(wish.summarizer, base_url=wish.base_url) if wish.summarizer else None
    client = Later(model, base_url=wish.base_url)
    reported = None
    address = wish.base_url or os.environ.get("OPENAI_BASE_URL")
    if address and wish.window is None:
        from foldline.models.servers import ask  # noqa: PLC0415 - few have a server

        reported = await ask(address, model)
        if reported is None or reported.window is None:
            notes.append(f"{address} does not say how large its window is; --window says it")
    policy = preset(wish.policy or "steady")
    if wish.start is not None:
        policy = replace(policy, start=wish.start)
    try:
        async with aopen(
            _address(wish.desk),
            model=model,
            window=wish.window,
            reserve=wish.reserve,
            policy=policy,
            session=name,
            tenant=wish.desk.tenant,
            exclusive=_HOLD,
            summarizer=teller,
            reported=reported,
        ) as opened:
            approve = _approve(face) if face else None
            agent = Agent(opened, client, approve=approve, rounds=wish.rounds)
            holding = asyncio.create_task(_hold(opened))
            try:
                yield Seat(
                    agent=agent,
                    models=lambda other: Later(other, base_url=wish.base_url),
                    notes=notes,
                )
            finally:
                holding.cancel()
                await asyncio.gather(holding, return_exceptions=True)
                client = agent.model
    except Busy as fault:
        raise Taken(name) from fault
    finally:
        for one in (client, teller):
            if one is not None:
                await one.close()


def _approve(face: Face) -> "Approve":
    """Whoever sits there is asked, each time."""
    from foldline.cli.repl.approving import asked  # noqa: PLC0415 - one message asks nobody

    async def approve(call: Call, intent: "Intent") -> str | None:
        answer = await asked(face, call, intent)
        return None if answer.agreed else answer.why

    return approve


async def _as_left(wish: Wish, name: str) -> Wish:
    """The wish, and where it says nothing, as the session was left."""
    async with wish.desk.store(make=True) as store:
        seen = await session(store, Name(wish.desk.tenant, name))
        view = seen.live.view
    if view.head < 0:
        return wish
    window, reserve, policy = (view.settings.get(key) for key in ("window", "reserve", "policy"))
    return replace(
        wish,
        model=wish.model or view.model or None,
        window=wish.window or cast("int | None", window),
        reserve=wish.reserve or cast("int | None", reserve),
        policy=wish.policy or cast("str | None", policy),
    )


async def _hold(opened: "AsyncSession") -> None:
    """Keep the session while the person thinks."""
    while True:
        await asyncio.sleep(_RENEW)
        with suppress(FoldlineError):  # the next append says so
            async with opened.live.lock:
                await opened.live.hold(_HOLD)


def _address(desk: Desk) -> str:
    plain = desk.address == MEMORY or "://" in desk.address
    return desk.address if plain else str(Path(desk.address).expanduser())


async def _once(wish: Wish, message: str) -> int:
    """One message, its answer on the standard output, and out."""
    from foldline.agent.moments import Speaking  # noqa: PLC0415 - as above
    from foldline.cli.repl import bar  # noqa: PLC0415
    from foldline.cli.repl.safe import Safe  # noqa: PLC0415

    flow, name = Safe(), await wish.which()

    def hear(moment: "Moment") -> None:
        if isinstance(moment, Speaking):
            sys.stdout.write(flow.feed(moment.words))
            sys.stdout.flush()

    async with seated(wish, name) as seat:
        for note in seat.notes:
            remark(note)
        seat.agent.hooks.append(hear)
        ended = await seat.agent.turn(sound(message))
        sys.stdout.write("\n")
        if ended.how != "answered":
            remark(ended.words)
        if sys.stderr.isatty():
            used = seat.agent.session.report
            remark(f"{name}: {bar.after(used.total, used.window)[0]}")
    return DONE


async def _plain(wish: Wish) -> int:
    from foldline.cli.repl.plain import Plain  # noqa: PLC0415 - for terminals that can do little

    face = Plain()
    try:
        return await wish.talk(face)
    finally:
        face.close()


def _begun(wish: Wish, message: str | None) -> Wish | int:
    """Talk, in the way that there is."""
    if door.waiting.get() is not None:
        return wish  # the line is there already, and talks itself
    if message is None and not sys.stdin.isatty():
        message = str(sys.stdin.read())
        if not message.strip():
            raise BadInput("nothing was said: write -m TEXT, or give a text on the standard input")
    if message is not None:
        return asyncio.run(_once(wish, message))
    if find_spec("prompt_toolkit") is None:
        raise BadInput(
            "a terminal to talk in needs the extra `chat`: pip install 'foldline[chat]'; "
            "without it one message goes by -m TEXT"
        )
    return door.sit(wish.talk) if door.able() else asyncio.run(_plain(wish))


def chat(  # noqa: PLR0913 - one for each option
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The session: new, or where it was left."),
    ] = None,
    *,
    go_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with NAME, or with the newest.")
    ] = False,
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="TEXT", help="One message, its answer, and out."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Who answers. As it was, if not said.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="A server that speaks as OpenAI does."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=1, help="What the model takes in all.")
    ] = None,
    reserve: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=1, help="What an answer may take.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="POLICY", help="When and how to fold: steady, …")
    ] = None,
    start: Annotated[
        Start | None, typer.Option(help="Who starts a fold that is due: nobody, you, /compact.")
    ] = None,
    summarizer: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Have this model tell what is folded.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often in one turn tools may be run.")
    ] = 25,
    store_: StoreOption = None,
    tenant_: TenantOption = None,
) -> Wish | int:
    """Talk with a model, for as long as you like.

    Commands begin with a slash: /help lists them. The session is kept; --continue goes on.
    """
    wish = Wish(
        desk=desk(store=store_, tenant=tenant_, under=ctx.obj),
        name=name,
        go_on=go_on,
        model=model,
        base_url=base_url,
        window=window,
        reserve=reserve,
        policy=policy,
        start=start,
        summarizer=summarizer,
        rounds=rounds,
    )
    if policy is not None:
        preset(policy)  # a wrong name is told at once
    return _begun(wish, message)
