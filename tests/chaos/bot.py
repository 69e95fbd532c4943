"""A year of a bot: messages from twenty chats, restarts by kill -9, and every answer delivered once (R-80).

    just chaos bot                      50,000 messages, 100 kills; some half an hour
    just chaos bot --short              1,000 messages, 4 kills, and the controls: under a minute

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
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "properties")]
from mutants import broken  # noqa: E402 - beside us

import foldline  # noqa: E402
from foldline.agent.loop import Agent  # noqa: E402
from foldline.core.log import Asked, Folded, ModelSaid, UserSaid  # noqa: E402
from foldline.core.parts import calls_of, text_of  # noqa: E402
from foldline.run.left import left  # noqa: E402
from foldline.store.at import store_at  # noqa: E402
from foldline.store.base import Name  # noqa: E402
from foldline.testing import ScriptedModel  # noqa: E402
from foldline.testing.telegram import BotApi, Called, Fault, Person  # noqa: E402

WINDOW = 4_000
STUCK = 60.0  # seconds without an answer
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
        "foldline.bot.track",
        "return _Kept() if entry is None else msgspec.json.decode(entry.value, type=_Kept)",
        "return _Kept()",
    ),
    "takes an update in twice": ("foldline.bot.chat", 'once=f"tg:{number}"', "once=None"),
}
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
    from foldline.bot.line import Line, Pace, bot_of  # noqa: PLC0415 - the child's alone
    from foldline.bot.rules import Rules  # noqa: PLC0415
    from foldline.bot.serving import Telegram  # noqa: PLC0415

    class Forgetful(ScriptedModel):
        async def say(self, request: Any, *, heard: Any = None) -> Any:
            self.requests.clear()
            return await super().say(request, heard=heard)

    model = Forgetful(answer)

    @asynccontextmanager
    async def seats(name: str) -> Any:
        async with foldline.aopen(
            address, session=name, model="scripted", window=WINDOW
        ) as session:
            yield SimpleNamespace(agent=Agent(session, model), models=None, approvals=None)

    pace = Pace(chat=0.0, stream=0.05, again=0.02, reading=10.0, polling=20)
    rules = Rules(allowed=frozenset({*range(1, 100), *range(-120, -99)}), lease=1.0, look=1.0)
    line = Line(bot_of(token, base_url=url, pace=pace), pace=pace)
    told: list[str] = []
    telegram = Telegram(
        line, seats=seats, store=store_at(address), tenant="local", rules=rules, tell=told.append
    )
    await telegram.begin()
    await telegram.poll()


@dataclass
class Process:
    """The bot, killed and started again."""

    address: str
    api: BotApi
    mutant: str = ""
    kills: int = 0
    one: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Begin."""
        given = ["--child", self.address, self.api.url, self.api.token, self.mutant]
        self.one = subprocess.Popen([sys.executable, __file__, *given])

    def kill(self) -> None:
        """Kill -9."""
        assert self.one is not None
        if self.one.poll() is not None:
            raise Broken(f"the bot ended by itself, with {self.one.returncode}")
        os.kill(self.one.pid, signal.SIGKILL)
        self.one.wait()
        self.kills += 1


# Telegram, which stutters and fails.


@dataclass(slots=True)
class Telegraph(BotApi):
    """The double, on a bad day."""

    random: Random = field(default_factory=lambda: Random(7))
    confirmed: list[dict[str, Any]] = field(default_factory=list)
    again: int = 0

    async def _do_getupdates(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        offset = int(given.get("offset", 0))
        self.confirmed += [one for one in self.pending if one["update_id"] < offset]
        del self.confirmed[:-5]
        found = await BotApi._do_getupdates(self, given)
        if self.confirmed and self.random.random() < 0.05:
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
    mutant: str = ""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    written: int = 0
    slowest: float = 0.0

    async def run(self) -> dict[str, Any]:
        """Live through it, and see what is left."""
        async with Telegraph(random=Random(self.random.random()), keep=False) as api:
            api.fault = api.trouble
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
            bot = Process(str(self.folder / "year.db"), api, self.mutant)
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
                    bot.one.wait()
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
            async with asyncio.timeout(STUCK):
                await talk.moved.wait()
        except TimeoutError:
            raise Broken(f"{talk.name} is stuck: no answer in {STUCK:.0f} s") from None
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
        end = time.monotonic() + STUCK
        while True:
            store = store_at(address)
            try:
                rest = [one.name for one in talks if not await self.still(store, one, api)]
            finally:
                await store.close()
            if not rest:
                return
            if time.monotonic() > end:
                raise Broken(f"not all was answered and delivered: {rest}")
            await asyncio.sleep(0.5)

    async def still(self, store: Any, talk: Talk, api: BotApi) -> bool:
        """Whether a chat is answered, and its newest answer stands there whole."""
        seen = await left(store, Name("local", talk.name))
        finals = [one for _, one in await seen.history.events() if isinstance(one, ModelSaid)]
        serial = _SERIAL.search(text_of(finals[-1].parts)) if finals else None
        waits = any(isinstance(one, UserSaid) and seq > seen.live.view.shown for seq, one in seen.live.view.held.items())  # fmt: skip
        shown = any(serial[0] in one.text and "📊" in "".join(x.text for x in api.shown(talk.chat, talk.topic)[-3:]) for one in reversed(api.shown(talk.chat, talk.topic))) if serial else False  # fmt: skip
        return not waits and shown and not api.pending

    async def judged(self, address: str, talks: list[Talk], api: BotApi) -> dict[str, Any]:
        """Whether all is as it must be, and the figures."""
        store = store_at(address)
        tokens: list[int] = []
        answers = folds = strays = 0
        try:
            for talk in talks:
                seen = await left(store, Name("local", talk.name))
                events = await seen.history.events()
                self.heard_once(talk, events)
                finals = self.answered_once(talk, events)
                self.shown_once(talk, finals, api)
                answers += len(finals)
                tokens += [one.tokens for _, one in events if isinstance(one, Asked)]
                folds += sum(isinstance(one, Folded) for _, one in events)
                strays += sum(
                    one.text == "…" for one in api.shown(talk.chat, talk.topic) if one.by_bot
                )
        finally:
            await store.close()
        if max(tokens) > WINDOW:
            raise Broken(f"a request of {max(tokens):,} tokens, and the window is {WINDOW:,}")
        return {
            "messages": self.written,
            "answers": answers,
            "requests": len(tokens),
            "folds": folds,
            "tokens of a request, mean": round(sum(tokens) / len(tokens)),
            "tokens of a request, most": max(tokens),
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


async def controlled(name: str) -> bool:
    """Whether a broken bot is caught."""
    try:
        await Year(100, 1, Random(5), mutant=name).run()
    except Broken as found:
        caught = re.search(r"[1-9]\d* (delivered )?twice", str(found)) is not None
        print(
            f"control: a bot that {name}: {'caught' if caught else 'WENT WRONG OTHERWISE'}: {found}"
        )
        return caught
    print(f"control: a bot that {name}: NOT CAUGHT")
    return False


async def main(messages: int, kills: int, seed: int) -> int:
    """The year, and the controls."""
    try:
        figures = await Year(messages, kills, Random(seed)).run()
    except Broken as fault:
        print(f"BROKEN: {fault}")
        return 1
    for name, one in figures.items():
        print(f"{name:26} {one:>10,.1f}" if isinstance(one, float) else f"{name:26} {one:>10,}")
    print(f"{'messages a minute':26} {60 * figures['messages'] / figures['seconds']:>10,.0f}")
    return 0 if all([await controlled(name) for name in MUTANTS]) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        address, url, token, mutant = sys.argv[2:]
        if mutant:
            with broken(*MUTANTS[mutant]):
                asyncio.run(serve(address, url, token))
        else:
            asyncio.run(serve(address, url, token))
        sys.exit(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--messages", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(
        asyncio.run(
            main(
                options.messages or (1_000 if options.short else 50_000),
                options.kills or (4 if options.short else 100),
                options.seed,
            )
        )
    )
