"""A year of a bot: messages from twenty chats, restarts by kill -9, and every answer delivered once (R-80).

    just chaos bot                      50,000 messages, 100 kills; some half an hour
    just chaos bot --store postgres     the same in a schema of its own, at FOLDLINE_PG or an address that is given
    just chaos bot --short              200 messages and 2 kills on each store, and the controls

The real bot in a process of its own, at the double of the Bot API on a real port, with a scripted model and a
window of 4,000 tokens. People in private chats, groups and topics write, mostly wait for their answer and
sometimes do not, fold and look. The API fails now and then: it is down, drops connections before and after it
has done what was asked, and tells updates again that were confirmed.

At the end every message is in the log once, under its author; every one was seen by an answer, every answer to
something new; every answer stands in its chat once, whole and in order; no request was over the window.

The controls must be caught, or the run fails: a bot that forgets what it delivered, and one that takes an
update in as often as it comes.
"""

import argparse
import asyncio
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

sys.path[:0] = [
    str(Path(__file__).parents[1] / name) for name in ("properties", "stores", "support")
]
import serving as postgres  # noqa: E402 - beside us
from fake_telegram import BotApi, Called, Fault, Person  # noqa: E402
from mutants import broken  # noqa: E402

import foldline  # noqa: E402
from foldline.agent.loop import Agent  # noqa: E402
from foldline.apps.bot.approval_cards import Rules  # noqa: E402
from foldline.apps.bot.bot_api import BotCalls, CallPace, bot_of  # noqa: E402
from foldline.apps.bot.bot_server import Telegram  # noqa: E402
from foldline.core.log import Asked, Folded, ModelSaid, UserSaid  # noqa: E402
from foldline.core.parts import calls_of, text_of  # noqa: E402
from foldline.session.stored_session import open_stored_session  # noqa: E402
from foldline.stores.base import POSTGRES, Name  # noqa: E402
from foldline.stores.open_store import store_at  # noqa: E402
from foldline.testing import ScriptedModel  # noqa: E402

WINDOW = 4_000
STUCK = 180.0  # seconds without an answer: a busy machine itself may stand still for one of them
LONG = 10_000  # messages from which on every chat has folded many times
GROWS = 1.1  # how much dearer the last quarter of the year may be than its second
WORDS = [
    "the",
    "parser",
    "reads",
    "a",
    "line",
    "and",
    "the",
    "tests",
    "say",
    "where",
    "it",
    "ends",
    "so",
    "nobody",
    "has",
    "to",
    "look",
    "twice",
]
MUTANTS = {
    "forgets what it delivered": (
        "foldline.apps.bot.delivery",
        "return _Kept() if entry is None else msgspec.json.decode(entry.value, type=_Kept)",
        "return _Kept()",
    ),
    "takes an update in twice": (
        "foldline.apps.bot.telegram_chat",
        'once=f"tg:{number}"',
        "once=None",
    ),
}
HEAVY = ("foldline.agent.loop", "foldline.apps.bot.bot_server", "foldline.stores.postgres", "fake_telegram", "serving")  # fmt: skip
_SERIAL = re.compile(r"answer ([0-9a-f]{16})")


class Broken(Exception):  # noqa: N818 - named for what was found
    """Something is not as it must be."""


# The bot, in a process of its own.


def answer(_: dict[str, Any]) -> str:
    """An answer that no other is like; one in fifty is too long for a message."""
    serial = os.urandom(8).hex()
    long = int(serial[:4], 16) % 50 == 0
    body = " ".join(WORDS) + ". "
    return f"answer {serial}: **{body}**" + ("\n\n" + body * 8) * (9 if long else 0)


async def serve(address: str, url: str, token: str) -> None:
    """Answer until we are killed."""

    class Forgetful(ScriptedModel):
        async def say(self, request: Any, *, heard: Any = None) -> Any:
            self.requests.clear()
            return await super().say(request, heard=heard)

    model, store = Forgetful(answer), store_at(address)

    @asynccontextmanager
    async def seats(name: str) -> Any:
        opened = {"session": name, "model": "scripted", "window": WINDOW}
        async with foldline.aopen(address, **opened, store=store) as session:
            yield SimpleNamespace(agent=Agent(session, model), models=None, approvals=None)

    pace = CallPace(chat=0.0, stream=0.05, again=0.02, reading=10.0, polling=20)
    rules = Rules(allowed=frozenset({*range(1, 100), *range(-120, -99)}), lease=1.0, look=1.0)
    line = BotCalls(bot_of(token, base_url=url, pace=pace), pace=pace)
    told: list[str] = []
    telegram = Telegram(
        line, seats=seats, store=store, tenant="local", rules=rules, tell=told.append
    )
    await telegram.start_bot()
    await telegram.poll_updates()


def nothing() -> None:
    """The first process waits until all is imported; the others are there at once."""


def child(address: str, url: str, token: str, mutant: str) -> None:
    """The bot, or a broken one."""
    if not mutant:
        asyncio.run(serve(address, url, token))
        return
    with broken(*MUTANTS[mutant]):
        asyncio.run(serve(address, url, token))


@dataclass
class Process:
    """The bot, killed and started again."""

    address: str
    api: BotApi
    mutant: str = ""
    kills: int = 0
    one: Any = None

    def start(self) -> None:
        """Begin."""
        given = (self.address, self.api.url, self.api.token, self.mutant)
        self.one = multiprocessing.get_context("forkserver").Process(target=child, args=given)
        self.one.start()

    def kill(self) -> None:
        """Kill -9."""
        if self.one.exitcode is not None:
            raise Broken(f"the bot ended by itself, with {self.one.exitcode}")
        os.kill(self.one.pid, signal.SIGKILL)
        self.one.join()
        self.kills += 1


# Telegram, which stutters and fails.


@dataclass(slots=True)
class Telegraph(BotApi):
    """The double, on a bad day."""

    random: Random = field(default_factory=lambda: Random(7))
    confirmed: list[dict[str, Any]] = field(default_factory=list)
    again: int = 0
    stutter: float = 0.05
    """How often updates that were confirmed are told again."""

    async def _do_getupdates(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        offset = int(given.get("offset", 0))
        self.confirmed += [one for one in self.pending if one["update_id"] < offset]
        del self.confirmed[:-5]
        found = await BotApi._do_getupdates(self, given)
        if self.confirmed and self.random.random() < self.stutter:
            self.again += len(self.confirmed)
            return [*self.confirmed, *found]
        return found

    def trouble(self, _: str) -> Fault | None:
        """What goes wrong with a call."""
        drawn = self.random.random()
        return (
            "error"
            if drawn < 0.005
            else "drop"
            if drawn < 0.01
            else "late"
            if drawn < 0.015
            else None
        )


@dataclass
class Talk:
    """One chat, and who is in it."""

    chat: int
    people: list[Person]
    topic: int | None = None
    said: int = 0
    wrote: list[tuple[str, str]] = field(default_factory=list)
    """Authors and words, in order."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """The session."""
        return f"tg-{self.chat}" + ("" if self.topic is None else f"-{self.topic}")


@dataclass
class Year:
    """One run."""

    messages: int
    kills: int
    random: Random
    address: str
    mutant: str = ""
    stuck: float = STUCK
    written: int = 0
    slowest: float = 0.0

    async def run(self) -> dict[str, Any]:
        """Live through it, and see what is left."""
        async with Telegraph(random=Random(self.random.random()), keep=False) as api:
            api.fault = api.trouble
            api.stutter = 0.5 if self.mutant else api.stutter  # a control must not hang on luck
            talks = self.talks(api)
            places = {(one.chat, one.topic): one for one in talks}

            def watch(call: Called) -> None:
                if (
                    call.method == "editMessageText"
                    and call.status == 200
                    and "📊" in call.given["text"]
                ):
                    shown = api.seen[int(call.given["chat_id"])][int(call.given["message_id"])]
                    places[
                        int(call.given["chat_id"]), shown.message.get("message_thread_id")
                    ].moved.set()

            api.watch = watch
            bot = Process(self.address, api, self.mutant)
            bot.start()
            begun = time.monotonic()
            killing = asyncio.create_task(self.killer(bot))
            try:
                await asyncio.gather(*(self.person(one) for one in talks))
                killing.cancel()
                await asyncio.gather(killing, return_exceptions=True)
                if not killing.cancelled() and killing.exception():
                    raise killing.exception()  # type: ignore[misc]
                bot.kill()
                bot.start()  # whoever is killed at the very end goes on too
                await self.calm(bot.address, talks, api)
            finally:
                killing.cancel()
                if bot.one is not None:
                    bot.one.kill()
                    bot.one.join()
            figures = await self.judged(bot.address, talks, api)
            return {
                **figures,
                "kills": bot.kills,
                "told again": api.again,
                "seconds": time.monotonic() - begun,
            }

    def talks(self, api: BotApi) -> list[Talk]:
        """Twenty chats: private ones, groups, topics."""
        alone = [Talk(n, [api.person(n, f"P{n}")]) for n in range(1, 13)]
        crowd = [api.person(n, f"Q{n}") for n in range(20, 24)]
        groups = [Talk(-100 - n, crowd) for n in range(4)]
        return [*alone, *groups, *(Talk(-110, crowd, topic=n) for n in range(2, 6))]

    async def person(self, talk: Talk) -> None:
        """Write, and mostly wait for the answer."""
        random = Random(f"{talk.name}{self.random.random()}")
        for n in range(self.messages // 20):
            who = random.choice(talk.people)
            words = f"{talk.name} #{n}: " + " ".join(random.choices(WORDS, k=random.randint(2, 60)))
            talk.wrote.append((who.name if talk.chat < 0 else "", words))
            self.written += 1
            talk.moved.clear()
            where = {} if talk.chat > 0 else {"chat": talk.chat, "topic": talk.topic}
            await who.say(words, **where)
            if random.random() < 0.02:
                await who.say(random.choice(["/compact", "/tokens", "/undo", "/history"]), **where)
            if random.random() < 0.8:
                await self.answered(talk)

    async def answered(self, talk: Talk) -> None:
        """Wait for an answer."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self.stuck):
                await talk.moved.wait()
        except TimeoutError:
            raise Broken(f"{talk.name} is stuck: no answer in {self.stuck:.0f} s") from None
        self.slowest = max(self.slowest, time.monotonic() - begun)

    async def killer(self, bot: Process) -> None:
        """Kill the bot, spread over the year."""
        for n in range(self.kills):
            while self.written < self.messages * (n + 0.5) / self.kills:  # noqa: ASYNC110 - a number
                await asyncio.sleep(0.005)
            await asyncio.sleep(self.random.random() * 0.2)
            bot.kill()
            bot.start()

    async def calm(self, address: str, talks: list[Talk], api: BotApi) -> None:
        """Wait until all is answered and delivered."""
        end, rest, store = time.monotonic() + self.stuck, talks, store_at(address)
        try:
            while rest := [one for one in rest if not await self.still(store, one, api)]:
                if time.monotonic() > end:
                    names = [one.name for one in rest]
                    raise Broken(f"not all was answered and delivered: {names}")
                await asyncio.sleep(0.1)
        finally:
            await store.close()

    async def still(self, store: Any, talk: Talk, api: BotApi) -> bool:
        """Whether a chat is answered, and its newest answer stands there whole."""
        seen = await open_stored_session(store, Name("local", talk.name))
        finals = [one for _, one in await seen.history.events() if isinstance(one, ModelSaid)]
        serial = _SERIAL.search(text_of(finals[-1].parts)) if finals else None
        waits = any(isinstance(one, UserSaid) and seq > seen.live.view.shown for seq, one in seen.live.view.held.items())  # fmt: skip
        shown = any(serial[0] in one.text and "📊" in "".join(x.text for x in api.shown(talk.chat, talk.topic)[-3:]) for one in reversed(api.shown(talk.chat, talk.topic))) if serial else False  # fmt: skip
        return not waits and shown and not api.pending

    async def judged(self, address: str, talks: list[Talk], api: BotApi) -> dict[str, Any]:
        """Whether all is as it must be, and the figures."""
        store = store_at(address)
        tokens: list[int] = []
        early: list[int] = []
        late: list[int] = []
        answers = folds = strays = 0
        try:
            for talk in talks:
                seen = await open_stored_session(store, Name("local", talk.name))
                events = await seen.history.events()
                self.heard_once(talk, events)
                finals = self.answered_once(talk, events)
                self.shown_once(talk, finals, api)
                answers += len(finals)
                asked = [one.tokens for _, one in events if isinstance(one, Asked)]
                tokens += asked
                quarter = len(asked) // 4
                early += asked[quarter : 2 * quarter]
                late += asked[3 * quarter :]
                folds += sum(isinstance(one, Folded) for _, one in events)
                strays += sum(
                    one.text == "…" for one in api.shown(talk.chat, talk.topic) if one.by_bot
                )
        finally:
            await store.close()
        if max(tokens) > WINDOW:
            raise Broken(f"a request of {max(tokens):,} tokens, and the window is {WINDOW:,}")
        before, after = sum(early) / len(early), sum(late) / len(late)
        if self.written >= LONG and after > GROWS * before:
            raise Broken(f"requests grew from {before:,.0f} to {after:,.0f} tokens over the year")
        return {
            "messages": self.written,
            "answers": answers,
            "requests": len(tokens),
            "folds": folds,
            "tokens of a request, mean": round(sum(tokens) / len(tokens)),
            "tokens of a request, most": max(tokens),
            "tokens of a request, spring": round(before),
            "tokens of a request, autumn": round(after),
            "tokens of a message, mean": round(sum(tokens) / self.written),
            "empty drafts left": strays,
            "longest wait, s": round(self.slowest, 1),
        }

    def heard_once(self, talk: Talk, events: Any) -> None:
        """Every message is in the log, once and in order."""
        heard = [(one.author, text_of(one.parts)) for _, one in events if isinstance(one, UserSaid) and one.speaker == "human"]  # fmt: skip
        if heard != talk.wrote:
            twice = len(heard) - len(set(heard))
            lost = len({*talk.wrote} - {*heard})
            raise Broken(f"{talk.name}: {lost} messages lost, {twice} twice, else out of order")

    def answered_once(self, talk: Talk, events: Any) -> list[ModelSaid]:
        """Every message was seen by an answer, every answer saw something new."""
        said = [seq for seq, one in events if isinstance(one, UserSaid) and one.speaker == "human"]
        finals = [(seq, one) for seq, one in events if isinstance(one, ModelSaid) and not calls_of(one.parts)]  # fmt: skip
        before = -1
        for seq, one in finals:
            saw = seq if one.saw is None else one.saw
            if not any(before < at <= saw for at in said[-400:] + said[:400]) and not any(before < at <= saw for at in said):  # fmt: skip
                raise Broken(f"{talk.name}: the answer at {seq} answers nothing new")
            before = saw
        if said and before < said[-1]:
            raise Broken(f"{talk.name}: the message at {said[-1]} was never answered")
        return [one for _, one in finals]

    def shown_once(self, talk: Talk, finals: list[ModelSaid], api: BotApi) -> None:
        """Every answer stands in its chat, once and in order."""
        wanted = [_SERIAL.findall(text_of(one.parts))[0] for one in finals]
        shown = [
            found
            for one in api.shown(talk.chat, talk.topic)
            if one.by_bot
            for found in _SERIAL.findall(one.text)
        ]
        if shown != wanted:
            raise Broken(
                f"{talk.name}: {len({*wanted} - {*shown})} answers not delivered, "
                f"{len(shown) - len({*shown})} delivered twice, else out of order"
            )


@contextmanager
def placed(store: str) -> Iterator[str]:
    """A new store's address: a file, or a schema that is dropped in the end."""
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="foldline-chaos-") as folder:
            yield str(Path(folder) / "year.db")
        return
    if store.startswith(POSTGRES):
        postgres.SERVER = store
    with postgres.a_schema() as schema:
        yield postgres.address_of(schema, postgres.SERVER)


def controlled(name: str) -> bool:
    """Whether a broken bot is caught; one that breaks otherwise first, as it may, is begun again."""
    for seed in range(5, 9):
        told = "NOT CAUGHT"
        with placed("sqlite") as address:
            try:
                year = Year(100, 1, Random(seed), address, mutant=name, stuck=30.0)
                asyncio.run(year.run())
            except Broken as found:
                caught = re.search(r"[1-9]\d* (delivered )?twice", str(found)) is not None
                told = f"{'caught' if caught else 'went wrong otherwise'}: {found}"
        print(f"control: a bot that {name}: {told}", flush=True)
        if told.startswith("caught"):
            return True
    return False


def lived(store: str, messages: int, kills: int, random: Random) -> bool:
    """A year on a store, and its figures."""
    kind = "SQLite" if store == "sqlite" else "PostgreSQL"
    with placed(store) as address:
        try:
            figures = asyncio.run(Year(messages, kills, random, address).run())
        except Broken as fault:
            print(f"{kind}: BROKEN: {fault}", flush=True)
            return False
    print(f"{'store':28} {kind:>10}")
    for name, one in figures.items():
        print(f"{name:28} {one:>10,.1f}" if isinstance(one, float) else f"{name:28} {one:>10,}")
    minute = 60 * figures["messages"] / figures["seconds"]
    print(f"{'messages a minute':28} {minute:>10,.0f}\n", flush=True)
    return True


def main() -> int:
    """The years, and the controls."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--short", action="store_true", help="few messages, on both stores")
    parser.add_argument("--store", metavar="sqlite|postgres|ADDRESS", help="where the year is kept")
    parser.add_argument("--messages", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    stores = (given.store,) if given.store else ("sqlite", "postgres")[: 1 + given.short]
    if wrong := [one for one in stores if one not in ("sqlite", "postgres") and not one.startswith(POSTGRES)]:  # fmt: skip
        parser.error(f"--store {wrong[0]}: write sqlite, postgres or postgresql://HOST/DATABASE")
    messages, kills = given.messages or (200 if given.short else 50_000), given.kills or (2 if given.short else 100)  # fmt: skip
    # Python 3.11 does not load our own module before it forks; what takes long is named here.
    multiprocessing.set_forkserver_preload([*HEAVY])
    first = multiprocessing.get_context("forkserver").Process(target=nothing)
    first.start()
    first.join()
    begun, good = time.monotonic(), True
    for store in stores:
        good &= lived(store, messages, kills, Random(given.seed))
    for name in MUTANTS:
        good &= controlled(name)
    took = time.monotonic() - begun
    print(f"{'all as it must be' if good else 'BROKEN'} in {took:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
