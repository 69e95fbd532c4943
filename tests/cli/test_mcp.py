"""`foldline mcp`: the real program, driven by the official SDK's client as a host would."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from tomllib import loads

import pytest
from mcp import Client, StdioServerParameters

import foldline
from foldline.agent.mcp.mcp_tools import Server
from foldline.core.tokens import count_tokens

pytestmark = pytest.mark.anyio
PROGRAM = Path(sys.executable).with_name("foldline")
LOG = "".join(f"line {at}: the parser saw token {at * 7919}\n" for at in range(4_000))


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def store(tmp_path):
    """Two sessions; in the first a result was cut before its model saw it."""
    address = str(tmp_path / "a.db")
    with foldline.open(address, model="gpt-5", window=16_000, session="parser-work") as session:
        session.add("Why does the parser fail?")
        call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        session.add({"role": "assistant", "content": None, "tool_calls": [call]})
        session.add({"role": "tool", "tool_call_id": "c1", "content": LOG})
        shown = session.request()["messages"][-1]["content"]
    with foldline.open(address, model="gpt-5", session="holiday") as session:
        session.add("Book a train to Zagreb.")
    return address, shown


@asynccontextmanager
async def host(*arguments):
    """A host that has started the program."""
    server = StdioServerParameters(command=str(PROGRAM), args=["mcp", *arguments])
    async with Client(server, read_timeout_seconds=30) as client:
        yield client


async def told(client, name, **given):
    answer = await client.call_tool(name, given)
    (block,) = answer.content
    return block.text, answer.is_error


async def test_r37_a_host_recalls_what_was_cut_by_the_words_that_stand_there(store):
    """The literal marker of a clip is the argument; pages, put together, are the original."""
    address, shown = store
    hint = re.search(r"\[truncated:.*\n\[log:\d+; ok; [^\]]+\]", shown)[0]
    size = os.path.getsize(address)  # noqa: ASYNC240, PTH202
    async with host("parser", "--store", address) as client:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == ["recall", "search_history", "context"]
        assert all(tool.annotations.read_only_hint for tool in listed)
        assert "session" not in json.dumps([tool.input_schema for tool in listed])
        pages: list[str] = []
        asked = hint
        while True:
            text, wrong = await told(client, "recall", handle=asked)
            assert not wrong, text
            assert count_tokens(text) <= 5_000
            first, _, body = text.partition("\n")
            pages.append(body)
            onward = re.search(r"go on: (recall\(.*\))\]", first)
            if onward is None:
                break
            asked = onward[1]
        assert "".join(pages) == LOG
        assert len(pages) > 2
        handle = re.search(r"log:\d+", hint)[0]
        last, _ = await told(client, "recall", handle=handle, tail=2)
        assert last.endswith("".join(LOG.splitlines(keepends=True)[-2:]))
        some, _ = await told(client, "recall", handle=handle, grep="token 15838$", around=1)
        assert "line 1:" in some
        assert "line 3:" in some
        five, _ = await told(client, "recall", handle=handle, lines=[5, 5])
        assert "line 4:" in five
    assert os.path.getsize(address) == size  # noqa: ASYNC240, PTH202


async def test_a_host_searches_and_looks_where_the_window_goes(store):
    address, _ = store
    async with host("parser-work", "--store", address) as client:
        found, wrong = await told(client, "search_history", words="parser fail")
        assert not wrong
        assert re.match(r"log:\d+: Why does the parser fail\?\n", found)
        assert await told(client, "search_history", words="Zagreb") == (
            "nothing holds any of: Zagreb",
            False,
        )
        drawn, wrong = await told(client, "context")
        assert not wrong
        assert "/ 16,000" in drawn
        assert "\x1b" not in drawn


async def test_what_is_wrong_is_an_error_of_the_tool_in_our_words(store):
    address, _ = store
    wrong = [
        ("recall", {"handle": "log:999"}, "log:999 is beyond this session's log"),
        ("recall", {"handle": "what?"}, "'what?' is not a handle; write log:12"),
        ("recall", {}, "'' is not a handle"),
        ("recall", {"handle": 5}, "handle is a text, not 5"),
        ("recall", {"handle": "log:1", "tail": "2"}, "tail is a whole number, not '2'"),
        ("recall", {"handle": "log:1", "lines": 4}, "lines is two whole numbers"),
        ("recall", {"handle": "log:1", "tail": 1, "head": 1}, "one way at a time"),
        ("search_history", {"words": " "}, "search for which words?"),
        ("erase", {}, "there is no tool 'erase'; there are recall, search_history, context"),
    ]
    async with host("parser-work", "--store", address) as client:
        for name, given, words in wrong:
            text, error = await told(client, name, **given)
            assert (error, words in text) == (True, True), (name, given, text)
        text, error = await told(client, "recall", handle="log:1")
        assert not error  # and it goes on


async def test_all_sessions_by_name_and_what_is_said_meanwhile(store):
    address, _ = store
    async with host("--all", "--store", address) as client:
        found, _ = await told(client, "search_history", words="Zagreb")
        assert re.fullmatch(r"holiday log:\d+: Book a train to Zagreb\.", found)
        assert (await told(client, "search_history", words="Zagreb", session="parser"))[0] == (
            "nothing holds any of: Zagreb"
        )
        handle = re.search(r"log:\d+", found)[0]
        assert await told(client, "recall", handle=handle, session="holi") == (
            "Book a train to Zagreb.",
            False,
        )
        text, wrong = await told(client, "recall", handle=handle)
        assert wrong
        assert 'write session="NAME"' in text
        text, wrong = await told(client, "context", session="holidya")
        assert wrong
        assert "there is no session 'holidya' here; did you mean holiday?" in text
        with foldline.open(address, model="gpt-5", session="holiday") as session:
            session.add("And a hotel in Split.")
        assert "Split" in (await told(client, "search_history", words="hotel"))[0]


async def test_a_gateways_conversations_are_told_apart_by_who_asks(tmp_path):
    """The protocol does not name the caller: it is the one that waits for this very call."""
    address, audit = str(tmp_path / "a.db"), tmp_path / "audit.jsonl"
    for name, handle in (("first", "log:1"), ("second", "log:2"), ("title", "")):
        with foldline.open(address, model="gpt-5", session=name) as session:
            session.add(f"Words of the {name}.")
            session.add({"role": "assistant", "content": f"Answer of the {name}."})
            session.add("Look back.")
            call = {"name": "mcp__foldline__recall", "arguments": json.dumps({"handle": handle})}
            calls = [{"id": f"call_{name}", "type": "function", "function": call}]
            if handle:
                session.add({"role": "assistant", "content": None, "tool_calls": calls})
    with foldline.open(address, model="gpt-5", session="elsewhere") as session:
        session.add("Words that no request of this gateway held.")
    lines = [{"session": "first"}, {"session": "second"}, {"session": ""}, {"session": "title"}]
    audit.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"session": "fi')
    async with host("--audit", str(audit), "--store", address) as client:
        listed = (await client.list_tools()).tools
        assert "session" not in json.dumps([tool.input_schema for tool in listed])
        assert await told(client, "recall", handle="log:1") == ("Words of the first.", False)
        assert await told(client, "recall", handle="log:2") == ("Answer of the second.", False)
        newest, _ = await told(client, "search_history", words="words")
        assert re.fullmatch(r"log:1: Words of the title\.", newest), "nobody asks: the newest"
    audit.unlink()
    async with host("--audit", str(audit), "--store", address) as client:
        text, wrong = await told(client, "recall", handle="log:1")
        assert (wrong, text) == (True, "no conversation went through the gateway yet")


async def test_what_the_page_tells_to_write_works(store):
    """The hosts' JSON starts a server, and every key of a settings table is one that there is."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "mcp.md").read_text()
    (settings,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    made = [Server(name, **table) for name, table in loads(settings)["mcp"]["servers"].items()]
    assert [(one.name, one.trusted) for one in made] == [("time", False), ("issues", True)]
    (body,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    told_ = json.loads(body.replace("NAME", "holiday"))["mcpServers"]["foldline"]
    assert told_["command"] == "foldline"
    async with host(*told_["args"][1:], "--store", store[0]) as client:
        assert "Zagreb" in (await told(client, "search_history", words="train"))[0]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "which session? write `foldline mcp NAME`"),
        (["parser-work", "--all"], 2, "which session?"),
        (["--all", "--audit", "audit.jsonl"], 2, "which session?"),
        (["nobody"], 1, "there is no session 'nobody' here"),
        (["x", "--store", "none.db"], 3, "there is no store at none.db"),
    ],
)
def test_a_wrong_start_is_one_line_on_stderr(store, program, arguments, code, words):
    ended = program("mcp", *arguments, env={"FOLDLINE_STORE": store[0]})
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
    assert words in ended.err


def test_only_the_protocol_is_on_stdout_and_it_ends_with_its_host(store):
    """Rubbish from a host is answered or passed over; a closed pipe or a signal ends it."""
    started = [PROGRAM, "mcp", "parser-work", "--store", store[0]]
    ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
    done = subprocess.run(
        started,
        input=f"rubbish\n{ping}\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in done.stdout.splitlines())
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(started, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
            process.stdin.write(f"{ping}\n")
            process.stdin.flush()
            process.stdout.readline()
            process.send_signal(number)
            assert process.wait(5) == -number
            assert process.stderr.read() == ""
