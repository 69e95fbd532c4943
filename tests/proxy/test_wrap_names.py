"""Names of conversations, and which one a thread or task has: P-12."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import anthropic
import openai
import pytest

import foldline
from foldline.errors import BadInput
from foldline.testing.provider import Provider

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend():
    return "asyncio"


def make_openai(provider, **options):
    return foldline.wrap(
        openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0, timeout=60),
        **options,
    )


def make_async_openai(provider, **options):
    return foldline.wrap(
        openai.AsyncOpenAI(
            base_url=f"{provider.url}/v1", api_key="none", max_retries=0, timeout=60
        ),
        **options,
    )


def ask(client, *words, **more):
    """Ask with a history of words, the user's and the model's in turn."""
    history = [
        {"role": "assistant" if at % 2 else "user", "content": one} for at, one in enumerate(words)
    ]
    return client.chat.completions.create(model="m", messages=history, **more)


def name_of(session):
    return getattr(session, "aio", session).live.name.session


def test_a_client_names_its_conversation():
    with Provider() as provider, make_openai(provider, session="order-1042") as client:
        ask(client, "Hello")
        assert name_of(foldline.session_of(client)) == "order-1042"


def test_a_block_names_the_conversation_of_its_calls():
    """The same words, in two conversations; the innermost name counts, and afterwards none."""
    with Provider() as provider, make_openai(provider, session="usual") as client:
        with foldline.conversation("outer"):
            ask(client, "Hello")
            with foldline.conversation("inner"):
                ask(client, "Hello")
                assert name_of(foldline.session_of(client)) == "inner"
            assert name_of(foldline.session_of(client)) == "outer"
        ask(client, "Hello")
        assert name_of(foldline.session_of(client)) == "usual"


def test_a_header_names_the_conversation_of_one_call_and_is_not_sent():
    with Provider() as provider, make_openai(provider) as client:
        heard = []
        inner = client._client._transport
        send = inner.handle_request
        inner.handle_request = lambda request: (heard.append(request), send(request))[1]
        ask(client, "Hello", extra_headers={"X-Foldline-Session": "by-header"})
        assert name_of(foldline.session_of(client)) == "by-header"
        assert "x-foldline-session" not in heard[0].headers


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", 5, None])
def test_what_cannot_be_a_name_is_refused_in_words(name):
    with pytest.raises(BadInput, match="cannot name"), foldline.conversation(name):
        pass


def test_copies_of_a_client_keep_their_conversations():
    with Provider() as provider, make_openai(provider) as client:
        answer = ask(client, "Hello").choices[0].message.content
        for copy in (client.with_options(timeout=9), client.copy(max_retries=1)):
            assert isinstance(copy, openai.OpenAI)
            ask(copy, "Hello", answer, "And now?")
            assert name_of(foldline.session_of(copy)) == name_of(copy.foldline.session)
            assert name_of(foldline.session_of(copy)) == name_of(foldline.session_of(client))
        other = client.copy(http_client=openai.DefaultHttpxClient())
        assert not hasattr(other, "foldline")
        with pytest.raises(BadInput, match="was not wrapped"):
            foldline.session_of(other)
        other.close()


def test_what_was_not_wrapped_has_no_session():
    with openai.OpenAI(api_key="none") as client, pytest.raises(BadInput, match="was not wrapped"):
        foldline.session_of(client)


def test_before_the_first_call_there_is_no_session():
    with Provider() as provider, make_openai(provider) as client:
        with pytest.raises(BadInput, match="nothing was asked through this client yet"):
            foldline.session_of(client)
        with foldline.conversation("mine"), pytest.raises(BadInput, match="'mine' yet"):
            foldline.session_of(client)


@pytest.mark.real
def test_sixteen_threads_each_find_their_own_session():
    """All begin with the same words and are answered the same; what follows is their own."""
    with Provider(lambda _: "Yes.") as provider, make_openai(provider) as client:
        together = threading.Barrier(16)

        def work(number):
            history, names = ["Hello"], set()
            together.wait()
            for turn in range(6):
                history += [ask(client, *history).choices[0].message.content, f"{number} {turn}"]
                names.add(name_of(foldline.session_of(client)))
                said = repr(foldline.session_of(client))
                assert turn == 0 or f"{number} {turn - 1}" in said
            return names

        with ThreadPoolExecutor(16) as pool:
            found = [*pool.map(work, range(16))]
        assert all(len(names) == 1 for names in found), found
        assert len(set.union(*found)) == 16


@pytest.mark.real
def test_threads_with_names_are_told_apart_though_they_say_the_same():
    with Provider(lambda _: "Yes.") as provider, make_openai(provider) as client:
        together = threading.Barrier(16)

        def work(number):
            history = ["Hello"]
            with foldline.conversation(f"thread-{number}"):
                together.wait()
                for _ in range(4):
                    history += [ask(client, *history).choices[0].message.content, "Go on"]
                    assert name_of(foldline.session_of(client)) == f"thread-{number}"
                return len(foldline.session_of(client).history.turns())

        with ThreadPoolExecutor(16) as pool:
            assert [*pool.map(work, range(16))] == [4] * 16


@pytest.mark.real
@pytest.mark.anyio
async def test_two_hundred_tasks_each_find_their_own_session():
    with Provider(lambda _: "Yes.") as provider:
        async with make_async_openai(provider) as client:

            async def work(number):
                history = [f"Hello from {number % 7}"]
                names = set()
                for turn in range(3):
                    answer = await ask(client, *history)
                    history += [answer.choices[0].message.content, f"{number} {turn}"]
                    await asyncio.sleep(0)
                    session = foldline.session_of(client)
                    names.add(name_of(session))
                    assert turn == 0 or f"{number} {turn - 1}" in repr(session)
                return names

            found = await asyncio.gather(*map(work, range(200)))
            assert all(len(names) == 1 for names in found), found
            assert len(set.union(*found)) == 200
            with pytest.raises(BadInput, match="200 conversations went through this client"):
                foldline.session_of(client)


@pytest.mark.anyio
async def test_a_name_reaches_the_tasks_that_are_started_inside_it():
    with Provider() as provider:
        async with make_async_openai(provider) as client:

            async def work():
                await ask(client, "Hello")

            with foldline.conversation("parent"):
                await asyncio.create_task(work())
                assert name_of(foldline.session_of(client)) == "parent"


def test_names_are_never_mixed_up_in_one_thread():
    """All begin alike and are answered alike; nothing is guessed where there is a name."""
    with Provider(lambda _: "Yes.") as provider, make_openai(provider) as client:
        for name in ("ada", None, "bob", None, "ada", "bob"):
            with foldline.conversation(name) if name else nullcontext():
                ask(client, "Hello")
                for turn in range(2):
                    ask(client, "Hello", "Yes.", f"{name} {turn}")
                    session = foldline.session_of(client)
                    said = " ".join(one.words for one in session.history.turns())
                    others = {"ada", "bob", "None"} - {str(name)}
                    assert not any(f"{other} " in said for other in others), said
                    assert not name or name_of(session).startswith(name)


def test_clients_of_one_thread_are_not_mixed_up():
    with Provider() as provider, make_openai(provider) as one, make_openai(provider) as other:
        ask(one, "Hello")
        ask(other, "Good morning")
        assert "Hello" in repr(foldline.session_of(one))
        assert "Good morning" in repr(foldline.session_of(other))


SNIPPET = """
import anthropic
import openai
import foldline

client = foldline.wrap(openai.OpenAI(), session="a", window=1_000)
reveal_type(client)
reveal_type(foldline.session_of(client))
reveal_type(foldline.session_of(foldline.wrap(anthropic.AsyncAnthropic())))
reveal_type(foldline.session_of(foldline.wrap(anthropic.Anthropic())))
reveal_type(foldline.session_of(foldline.wrap(openai.AsyncOpenAI())))
with foldline.conversation("b"):
    reveal_type(foldline.session_of(client.with_options(timeout=3)).report)
"""
REVEALED = ["OpenAI", "Session", "AsyncSession", "Session", "AsyncSession", "Report"]


@pytest.mark.real
def test_types_are_kept(tmp_path):
    (tmp_path / "snippet.py").write_text(f"# pyright: strict\n{SNIPPET}")
    command = [ROOT / ".venv/bin/pyright", "--pythonpath", sys.executable, "snippet.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    said = [
        line.rpartition(' is "')[2].rstrip('"')
        for line in done.stdout.splitlines()
        if " is " in line
    ]
    assert said == REVEALED


@pytest.mark.parametrize("asks", [foldline.wrap, foldline.open, foldline.http_client])
def test_help_fits_a_screen(asks):
    import pydoc  # noqa: PLC0415

    assert len(pydoc.plain(pydoc.render_doc(asks)).splitlines()) <= 40


def test_anthropics_client_too():
    with Provider() as provider:
        made = anthropic.Anthropic(base_url=provider.url, api_key="none")
        with foldline.wrap(made, session="claude") as client:
            said = [{"role": "user", "content": "Hello"}]
            client.with_options(timeout=5).messages.create(model="m", max_tokens=9, messages=said)
            assert name_of(foldline.session_of(client)) == "claude"
