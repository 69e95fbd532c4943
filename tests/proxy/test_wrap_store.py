"""A store that is locked, slow or gone, and one that is opened again: P-12."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from threading import Timer

import apsw
import openai
import pytest
from test_wrap_names import ask, make_async_openai, make_openai, name_of

import foldline
from foldline.errors import BadInput, StoreFailed
from foldline.session.sync import run_coroutine
from foldline.testing.provider import Provider

pytestmark = pytest.mark.real  # locks, killed processes and SDKs that wait: seconds of them
SECONDS = 2.0
"""The client's timeout in these tests."""


@pytest.fixture
def anyio_backend():
    return "asyncio"


@contextmanager
def locked(path):
    """The file, held by another program that writes."""
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    try:
        yield
    finally:
        other.execute("rollback")
        other.close()


class Troubled:
    """A store of which every operation takes some seconds, or fails."""

    def __init__(self, store, seconds=0.0, fault=None):
        self._store, self.seconds, self.fault = store, seconds, fault

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name == "close" or not callable(found):
            return found

        async def doing(*args, **kwargs):
            await asyncio.sleep(self.seconds)
            if self.fault:
                raise self.fault
            return await found(*args, **kwargs)

        return doing


def trouble(client, **how):
    """Put trouble between a client and its store."""
    conversations = client.foldline._planner.conversations
    troubled = Troubled(conversations.store, **how)
    for one in conversations.list_held():
        one.store = troubled
    conversations.store = troubled
    return troubled


def test_a_stream_that_is_dropped_blocks_nobody():
    """The garbage collector closes it in any thread: also in the one that keeps answers."""
    with Provider() as provider, make_openai(provider) as client:
        for turn in range(40):
            for _ in ask(client, f"Hello {turn}", stream=True):
                break
            if turn % 4 == 0:
                run_coroutine(collect())
        assert ask(client, "Hello", timeout=5).choices


async def collect():
    """Collect garbage in the thread that keeps answers."""
    gc.collect()


def test_a_process_that_was_forked_off_opens_the_store_anew(tmp_path):
    path = tmp_path / "chats.db"
    with Provider() as provider, make_openai(provider, store=path, session="mine") as client:
        ask(client, "Hello")
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            try:
                ask(client.copy(http_client=client._client), "From the child", timeout=20)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert len(provider.bodies) == 2
        ask(client, "Hello", "ok", "And now?")


def test_a_locked_file_is_wrapped_at_once(tmp_path):
    path = tmp_path / "chats.db"
    with Provider() as provider:
        make_openai(provider, store=path).close()
        begun = time.monotonic()
        with locked(path), make_openai(provider, store=path, on_store_error="pass") as client:
            assert ask(client, "Hello", timeout=SECONDS).choices
        assert time.monotonic() - begun < SECONDS + 0.5


def test_a_session_is_found_though_its_answer_could_not_be_kept(tmp_path):
    path = tmp_path / "chats.db"
    with Provider() as provider, make_openai(provider, store=path) as client:
        ask(client, "Hello")
        holding = trouble(client)
        provider.delay = 0.5
        Timer(0.25, lambda: setattr(holding, "fault", StoreFailed("away"))).start()
        with foldline.conversation("mine"):
            ask(client, "Hello")
            assert name_of(foldline.session_of(client)) == "mine"


def test_a_client_that_is_closed_meanwhile_raises_the_sdks_error(tmp_path):
    with Provider() as provider:
        client = make_openai(provider, store=tmp_path / "chats.db")
        ask(client, "Hello")
        client.foldline._planner._is_closed = True
        run_coroutine(client.foldline._planner.conversations.close())
        with pytest.raises(openai.APIConnectionError):
            ask(client, "Hello")


def history(turns):
    return [f"{at} {'word ' * 20}" for at in range(2 * turns + 1)]


@pytest.mark.parametrize("how", ["locked", "slow", "gone"])
@pytest.mark.parametrize("retries", [0, 2])
def test_a_call_ends_within_its_clients_timeout(tmp_path, how, retries):
    """With the SDK's own error; and afterwards all is as if nothing had been."""
    path = tmp_path / "chats.db"
    with Provider() as provider, make_openai(provider, store=path) as once:
        client = once.with_options(max_retries=retries)
        ask(client, *history(0))
        fault = StoreFailed("the disk is away") if how == "gone" else None
        holding = trouble(client, seconds=60 * (how == "slow"), fault=fault)
        begun = time.monotonic()
        kind = openai.APIConnectionError if how == "gone" else openai.APITimeoutError
        with (
            locked(path) if how == "locked" else nullcontext(),
            pytest.raises(openai.APIConnectionError) as told,
        ):
            ask(client, *history(1), timeout=SECONDS)
        pauses = 3.0 if retries else 0.0  # the SDK's own
        assert time.monotonic() - begun < SECONDS * (retries + 1) + pauses
        assert isinstance(told.value, kind) or retries
        assert isinstance(told.value.__cause__.__cause__, StoreFailed | TimeoutError)
        assert len(provider.bodies) == 1
        holding.seconds, holding.fault = 0.0, None
        time.sleep(SECONDS / 2)  # so long it is left alone
        ask(client, *history(1))
        assert len(foldline.session_of(client).history.turns()) == 2


@pytest.mark.parametrize("how", ["locked", "slow", "gone"])
def test_passing_sends_the_clients_own_bytes(tmp_path, how, caplog):
    path = tmp_path / "chats.db"
    with Provider() as plain, Provider() as provider:
        with openai.OpenAI(base_url=f"{plain.url}/v1", api_key="none") as bare:
            ask(bare, *history(3))
        with make_openai(provider, store=path, on_store_error="pass", window=600) as client:
            fault = StoreFailed("the disk is away") if how == "gone" else None
            holding = trouble(client, seconds=60 * (how == "slow"), fault=fault)
            begun = time.monotonic()
            with locked(path) if how == "locked" else nullcontext():
                assert ask(client, *history(3), timeout=SECONDS).choices
                first = time.monotonic() - begun
                assert ask(client, *history(3), timeout=SECONDS).choices
            assert first < SECONDS
            assert provider.bodies == plain.bodies * 2
            assert "is not planned, the store is away" in caplog.text
            holding.seconds, holding.fault = 0.0, None
            time.sleep(SECONDS / 2)
            ask(client, *history(3))
            assert foldline.session_of(client).asked > 0


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["raise", "pass"])
async def test_the_same_of_an_async_client(tmp_path, mode):
    path = tmp_path / "chats.db"
    with Provider() as provider:
        async with make_async_openai(provider, store=path, on_store_error=mode) as client:
            begun = time.monotonic()
            with locked(path):
                if mode == "raise":
                    with pytest.raises(openai.APITimeoutError):
                        await ask(client, "Hello", timeout=SECONDS)
                else:
                    assert (await ask(client, "Hello", timeout=SECONDS)).choices
            assert time.monotonic() - begun < SECONDS


def test_nothing_is_written_behind_the_back_of_a_call_that_was_given_up(tmp_path):
    """The lock goes away a moment later: what was sent as it came is not in the log as planned."""
    path = tmp_path / "chats.db"
    with Provider() as provider, make_openai(provider, store=path, on_store_error="pass") as client:
        with locked(path):
            ask(client, "Hello", timeout=1.0)
        time.sleep(0.5)
        with foldline.open(path, model="m", session="other"):
            pass
        rows = apsw.Connection(str(path)).execute("select session from sessions").fetchall()
        assert [one for (one,) in rows] == ["other"]


def test_an_answer_is_given_though_it_cannot_be_kept(tmp_path):
    path = tmp_path / "chats.db"
    with Provider() as provider, make_openai(provider, store=path) as client:
        words = ask(client, "Hello").choices[0].message.content
        holding = trouble(client)
        provider.delay = 0.5
        # The trouble begins while the provider thinks.
        Timer(0.25, lambda: setattr(holding, "fault", StoreFailed("away"))).start()
        answer = ask(client, "Hello", words, "And now?").choices[0].message.content
        assert answer
        holding.fault = None
        ask(client, "Hello", words, "And now?", answer, "And then?")
        assert len(foldline.session_of(client).history.turns()) == 3


def test_a_wrong_word_for_store_errors_is_told():
    with Provider() as provider, pytest.raises(BadInput, match='give "raise" or "pass"'):
        make_openai(provider, on_store_error="ignore")


PROGRAM = """
import json, os, signal, sys
import openai
import foldline

url, store, name, first, last = sys.argv[1:]
options = {"session": name} if name else {}
client = foldline.wrap(
    openai.OpenAI(base_url=url, api_key="none", max_retries=0), store=store, window=2000, **options
)
history = json.loads(sys.stdin.read())
for turn in range(int(first), int(last)):
    history.append({"role": "user", "content": f"{turn} " + "and so on " * 60})
    answer = client.chat.completions.create(model="m", messages=history)
    history.append({"role": "assistant", "content": answer.choices[0].message.content})
    session = foldline.session_of(client)
    if session.edits:
        break
print(json.dumps([session.aio.live.name.session, session.edits, history]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def play(url, store, name, said, turns):
    """Some turns in a process of their own, which is killed behind them."""
    command = [sys.executable, "-c", PROGRAM, f"{url}/v1", store, name, *map(str, turns)]
    done = subprocess.run(
        command, input=json.dumps(said), capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["", "order-1042"])
def test_a_process_that_was_killed_goes_on_with_the_same_fold(tmp_path, name):
    """The same prefix: what the provider has cached stays of use."""
    store = str(tmp_path / "chats.db")
    with Provider() as provider:
        session, edits, said = play(provider.url, store, name, [], (0, 14))
        assert edits
        before = provider.bodies[-1]
        again, still, _ = play(provider.url, store, name, said, (14, 15))
        assert again == session
        assert still[: len(edits)] == edits
        assert provider.bodies[-1].startswith(before[:-3])  # all but the ends of list and body
        assert not name or session == name


def test_without_a_file_nothing_is_found_again():
    with Provider() as provider:
        _, _, said = play(provider.url, ":memory:", "", [], (0, 2))
        with make_openai(provider) as client:
            ask(client, *(one["content"] for one in said), "Go on")
            assert name_of(foldline.session_of(client))
            assert foldline.session_of(client).edits == []
