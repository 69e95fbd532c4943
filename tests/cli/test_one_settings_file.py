"""One settings file, every site: the same conversation makes the same edits and sends the same bytes.

Terminal, bot, scheduler, worker, session API, relay, `wrap` and `open` hold one scripted conversation
under one foldline.toml: a preset that is not the default, thresholds, clips, masks, a window, a reserve
and a prompt template. What differs between them is made equal or left out:

- System prompt and tools: the terminal's are taken from its first request and given to the others.
- Places in the log: the terminal also records its host, so handles are compared by message.
- Who speaks: the scheduler is held against `open` that is told the same by `cron`.
- Parameters of requests (a stream is asked for, or not): compared is the conversation, `messages`. The
  provider reports no counts, since they would count parameters too and correct our estimates.
- `wrap` and relay send the client's own messages with patches: their JSON is compared, not its spacing.
  No fold of theirs takes an answer that the client repeats for the first time, as it may still ask for
  another one: each fold ends one answer earlier, and is else the same.
"""

import asyncio
import json
import re
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import openai
import pytest
from fake_telegram import BotApi
from program import served
from serving import address_of, an_empty_schema, connected

import foldline
from foldline.apps.bot.approval_cards import Rules
from foldline.apps.bot.bot_api import BotCalls, CallPace, bot_of
from foldline.apps.bot.bot_server import Telegram
from foldline.apps.cli.app import run_command
from foldline.apps.cli.build_agent import Wish, open_agent
from foldline.apps.cli.context import Desk
from foldline.core.log import Clipped, Edit, Folded, Masked, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import text_of
from foldline.session.stored_session import open_stored_session
from foldline.session.use_settings import build_open_arguments
from foldline.settings.layers import load_settings
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import Provider
from foldline.testing import provider as provider_module
from foldline.testing.provider import written

TURNS = 9
MODEL = "m"
FILE = """
policy = "sliding"
summarizer = "off"
[model]
name = "m"
max_input_tokens = 24000
max_output_tokens = 1500
[session.context]
max_tool_result_tokens = 400
tool_result_truncation = "head"
tool_result_keep_first = 1
tool_result_keep_last = 2
[compaction]
invocation_threshold = 3
overlap_size = 1
prompt_template = "Tell what happened in {words} words."
[providers.openai]
compact_threshold = 0.65
[instructions]
memory = ""
max_tokens = 0
"""
PAGE = "Line {0} of the page says that the valve {0} was set to {1} and then left as it was.\n"
RESULT = 4  # calls in a turn that looks
HANDLE = re.compile(r"log:(\d+)(?:-(\d+))?")


def words(turn):
    """What is said in a turn."""
    return f"Turn {turn}: look at part {turn} of the plant and tell me what is wrong there."


def answer(body):
    """A model that reads four pages in every third turn, and answers at once in all others."""
    said = [one for one in body["messages"] if one["role"] in ("user", "tool", "assistant")]
    last = max(at for at, one in enumerate(said) if one["role"] == "user")
    turn = int(re.findall(r"Turn (\d+):", str(said[last]["content"]))[-1])
    read = sum(one["role"] == "tool" for one in said[last:])
    if turn % 3 == 2 and read < RESULT:
        function = {"name": "read", "arguments": json.dumps({"path": f"page{read}.txt"})}
        return {"tool_calls": [{"id": f"c{turn}_{read}", "type": "function", "function": function}]}
    return f"Part {turn} is sound, after {read} pages."


def uncounted(*given):
    """What the provider writes, without its counts."""
    whole, events = written(*given)
    return whole | {"usage": None}, (one for one in events if '"usage": {' not in one)


class Held:
    """A conversation that was held: its log, and the requests that were sent."""

    def __init__(self, events, bodies):
        places = [
            seq for seq, one in events if isinstance(one, UserSaid | ModelSaid | ToolReturned)
        ]
        self._numbers = {seq: number for number, seq in enumerate(places)}
        self.edits = [self._tell(one) for _, one in events if isinstance(one, Edit)]
        self.clips = [
            self._renumber(text_of(one.clip.parts))
            for _, one in events
            if isinstance(one, ToolReturned) and one.clip
        ]
        said = [[one for one in body["messages"] if one["role"] != "system"] for body in bodies]
        self.sent = [self._renumber(json.dumps(one, sort_keys=True)) for one in said]

    def _number(self, seq, *, up):
        near = [one for one in self._numbers if (one >= seq if up else one <= seq)]
        return self._numbers[(min if up else max)(near)] if near else None

    def _renumber(self, text):
        def told(found):
            lo = self._number(int(found[1]), up=True)
            return f"log:#{lo}" + (f"-{self._number(int(found[2]), up=False)}" if found[2] else "")

        return HANDLE.sub(told, text)

    def _tell(self, event):
        span = event.change.span
        where = (self._number(span.lo, up=True), self._number(span.hi, up=False))
        match event:
            case Folded():
                return "fold", where, event.why, self._renumber(event.text)
            case Masked() | Clipped():
                stubs = [(self._numbers[one.seq], self._renumber(one.text)) for one in event.stubs]
                return type(event).__name__.lower(), where, stubs
            case _:
                return type(event).__name__, where


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """A folder with the settings and the pages, and a provider."""
    tmp_path = tmp_path_factory.mktemp("plant")
    config = tmp_path / "config" / "foldline"
    config.mkdir(parents=True)
    (config / "foldline.toml").write_text(FILE)
    folder = tmp_path / "plant"
    folder.mkdir()
    for number in range(RESULT):
        page = (PAGE.format(line, number) for line in range(60))
        (folder / f"page{number}.txt").write_text("".join(page))
    with pytest.MonkeyPatch.context() as patch, Provider(answer) as provider:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        patch.setenv("OPENAI_API_KEY", "none")
        patch.delenv("OPENAI_BASE_URL", raising=False)
        patch.chdir(folder)
        patch.setattr(provider_module, "written", uncounted)
        yield SimpleNamespace(folder=folder, provider=provider, store=str(folder / "talks.db"))


def log_of(address, session):
    """All events of a session."""

    async def read():
        store = store_at(address)
        try:
            return await (await open_stored_session(store, Name("local", session))).history.events()
        finally:
            await store.close()

    return asyncio.run(read())


def taken(plant, session, *, address=None):
    """What was held in a session since the last look at the provider."""
    bodies = plant.provider.asked
    plant.provider.bodies.clear()
    plant.provider.statuses.clear()
    return Held(log_of(address or plant.store, session), bodies)


def results_of(plant):
    """What the terminal's tool read, by call; and its system prompt and tools."""
    log = log_of(plant.store, "terminal")
    found = {one.call_id: text_of(one.parts) for _, one in log if isinstance(one, ToolReturned)}
    first = plant.provider.asked[0]
    return found, first["messages"][0]["content"], first["tools"]


@pytest.fixture(scope="module")
def terminal(plant):
    """The conversation at the terminal, and what the others need of it."""
    for turn in range(1, TURNS + 1):
        go_on = () if turn == 1 else ("--continue",)
        there = ("--store", plant.store, "--base-url", f"{plant.provider.url}/v1")
        assert run_command(["chat", "terminal", *go_on, "-m", words(turn), *there]) == 0
    results, system, tools = results_of(plant)
    return SimpleNamespace(
        results=results, system=system, tools=tools, held=taken(plant, "terminal")
    )


def by_open(  # noqa: PLR0913 - what may be otherwise
    plant, terminal, *, address=None, session="open", before=None, speaker="human"
):
    """The loop of somebody who uses the library."""
    given = {**build_open_arguments(load_settings(Path.cwd())), "session": session}
    given |= {"system": terminal.system, "tools": terminal.tools}
    client = openai.OpenAI(base_url=f"{plant.provider.url}/v1", api_key="none")
    for turn in range(1, TURNS + 1):
        with foldline.open(address or plant.store, **given) as s:
            author = f"turn{turn}" if speaker == "cron" else ""
            s.add(words(turn), speaker=speaker, author=author)
        if before is not None:
            before(session)
        with foldline.open(address or plant.store, **given) as s:
            while True:
                reply = client.chat.completions.create(**s.request())
                s.add(reply)
                calls = reply.choices[0].message.tool_calls or ()
                if not calls:
                    break
                for call in calls:
                    text = terminal.results[call.id]
                    s.add({"role": "tool", "tool_call_id": call.id, "content": text})
    client.close()
    return taken(plant, session, address=address)


def by_client(client, terminal):
    """The loop of a client that keeps its history itself."""
    history = [{"role": "system", "content": terminal.system}]
    for turn in range(1, TURNS + 1):
        history.append({"role": "user", "content": words(turn)})
        while True:
            reply = client.chat.completions.create(
                model=MODEL, messages=history, tools=terminal.tools, max_tokens=1_500
            )
            said = reply.choices[0].message
            calls = [call.model_dump() for call in said.tool_calls or ()]
            own = {"role": "assistant", "content": said.content}
            history.append({**own, "tool_calls": calls} if calls else own)
            if not said.tool_calls:
                break
            for call in said.tool_calls:
                text = terminal.results[call.id]
                history.append({"role": "tool", "tool_call_id": call.id, "content": text})


def test_the_file_is_in_force_at_the_terminal(terminal):
    """Each part of it shows: folds by turns, masks, clips."""
    kinds = [one[0] for one in terminal.held.edits]
    assert kinds.count("fold") >= 2
    assert "masked" in kinds
    assert len(terminal.held.clips) == RESULT * (TURNS // 3)


def same(held, other):
    """Two conversations had the same edits and sent the same messages."""
    assert held.edits == other.edits
    assert held.clips == other.clips
    assert len(held.sent) == len(other.sent)
    for one, two in zip(held.sent, other.sent, strict=True):
        assert one == two


def same_but_for_the_last_answer(held, terminal):
    """A client's conversation had the same edits, and each fold left out the newest answer."""
    assert held.clips == terminal.clips
    assert [one for one in held.edits if one[0] != "fold"] == [
        one for one in terminal.edits if one[0] != "fold"
    ]
    folds, others = ([e for e in one.edits if e[0] == "fold"] for one in (held, terminal))
    assert [one[0] for one in held.edits] == [one[0] for one in terminal.edits]
    assert [one[2] for one in folds] == [one[2] for one in others]
    assert [one[1][1] for one in folds] == [one[1][1] - 1 for one in others]
    for own, other in zip(folds, others, strict=True):
        quoted = [line for line in own[3].splitlines() if ": Turn " in line]
        assert quoted == [line for line in other[3].splitlines() if ": Turn " in line]
    assert len(held.sent) == len(terminal.sent)
    for one, two in zip(map(json.loads, held.sent), map(json.loads, terminal.sent), strict=True):
        last = max(at for at, message in enumerate(one) if message["role"] == "user")
        assert one[last:] == two[last - len(one) :]  # the whole turn, with its clips and masks
        if not any("[handoff" in str(message) for message in one):
            assert one == two


def test_open_with_the_settings(plant, terminal):
    same(by_open(plant, terminal), terminal.held)


def test_wrap_with_the_settings(plant, terminal):
    inner = openai.OpenAI(base_url=f"{plant.provider.url}/v1", api_key="none")
    client = foldline.wrap(
        inner, store=plant.store, session="wrapped", settings=load_settings(Path.cwd())
    )
    by_client(client, terminal)
    name = foldline.session_of(client).aio.live.name.session
    client.close()
    inner.close()
    same_but_for_the_last_answer(taken(plant, name), terminal.held)


@contextmanager
def gateway(plant):
    options = ["--port", "0", "--store", plant.store, "--upstream", plant.provider.url]
    with served(options, plant.folder, FOLDLINE_UPSTREAM_KEY="none") as begun:
        yield begun


def test_the_relay_of_serve(plant, terminal):
    with gateway(plant) as begun:
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{begun.port}/v1",
            api_key="none",
            default_headers={"x-foldline-session": "relayed"},
        )
        by_client(client, terminal)
        client.close()
        assert f"policy    sliding  {Path.cwd().parent}/config" in begun.shown
    listed = asyncio.run(names_of(plant.store))
    (name,) = [one for one in listed if one.startswith("relayed")]
    same_but_for_the_last_answer(taken(plant, name), terminal.held)


async def names_of(address):
    store = store_at(address)
    try:
        return [one.session for one in await store.sessions("local")]
    finally:
        await store.close()


def test_the_session_api_of_serve(plant, terminal):
    with gateway(plant) as begun:

        def post(path, body):
            headers = {"content-type": "application/json", "authorization": f"Bearer {begun.token}"}
            url = f"http://127.0.0.1:{begun.port}/sessions{path}"
            asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(asked, timeout=30) as got:  # noqa: S310
                return json.load(got)

        post(
            "", {"name": "api", "model": MODEL, "system": terminal.system, "tools": terminal.tools}
        )
        for turn in range(1, TURNS + 1):
            said = post("/api/messages", {"text": words(turn)})
            while said["ended"] == "calls":
                for call in said["calls"]:
                    result = {"role": "tool", "tool_call_id": call["id"], "content": terminal.results[call["id"]]}  # fmt: skip
                    said = post("/api/messages", {"message": result})
            assert said["ended"] == "answered", said
    same(taken(plant, "api"), terminal.held)


def test_the_bot(plant, terminal):
    flags = {"model.base_url": f"{plant.provider.url}/v1"}
    wish = Wish(desk=Desk(plant.store, given=True), flags=flags)

    async def talk():
        pace = CallPace(chat=0.0, stream=0.05, again=0.02, reading=5.0, polling=20)
        store = store_at(plant.store)
        async with BotApi() as api:
            telegram = Telegram(
                BotCalls(bot_of(api.token, base_url=api.url, pace=pace), pace=pace),
                seats=partial(open_agent, wish, alone=False, store=store),
                store=store,
                tenant="local",
                rules=Rules(allowed=frozenset({7}), lease=2.0, again=0.05, look=0.2),
                tell=print,
            )
            await telegram.start_bot()
            polling = asyncio.create_task(telegram.poll_updates())
            try:
                ann = api.person(7, "Ann")
                for turn in range(1, TURNS + 1):
                    await ann.say(words(turn))
                    await api.until(
                        lambda turn=turn: api.screen(7).count("📊 Context:") == turn, 60
                    )
            finally:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
                await telegram.close()
                await store.close()

    asyncio.run(talk())
    same(taken(plant, "tg-7"), terminal.held)


def test_the_scheduler(plant, terminal, cli):
    """Against `open` that is told the same by cron: what cron said is never quoted as the user's."""
    there = ["--store", plant.store]
    for turn in range(1, TURNS + 1):
        new = ["--new", "--model", MODEL] if turn == 1 else []
        added = cli("schedule", "add", f"turn{turn}", "--session", "cron", "--cron", "0 0 1 1 *", "--say", words(turn), *new, *there)  # fmt: skip
        assert added.code == 0, added.err
        fired = cli("schedule", "fire", f"turn{turn}", "--base-url", f"{plant.provider.url}/v1", *there)  # fmt: skip
        assert fired.code == 0, fired.err
    scheduled = taken(plant, "cron")
    same(scheduled, by_open(plant, terminal, session="as-cron", speaker="cron"))
    folds = [one for one in scheduled.edits if one[0] == "fold"]
    where = [one[:3] for one in terminal.held.edits if one[0] == "fold"]
    assert [one[:3] for one in folds] == where  # and the same ranges as a person's turns


@pytest.mark.real
def test_the_worker(plant, terminal, cli):
    """The worker makes every fold, in a session on PostgreSQL that nobody holds."""
    from foldline.session.fold_queue import defer_fold  # noqa: PLC0415 - an extra

    told = []
    with an_empty_schema() as schema:
        address = address_of(schema)

        def work(session):
            asyncio.run(defer_fold(address, Name("local", session), install=True))
            done = cli("worker", "--once", "--no-model", "--store", address)
            assert done.code == 0, done.err
            told.append(done.out)

        held = by_open(plant, terminal, address=address, session="worked", before=work)
        with connected() as server:
            server.execute(f"drop schema if exists {schema}_jobs cascade")
    folds = [one for one in terminal.held.edits if one[0] == "fold"]
    assert sum("folded" in one for one in told) == len(folds)
    same(held, terminal.held)
