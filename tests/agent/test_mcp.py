"""MCP servers as tools: whatever they answer comes in whole, whatever they do the agent goes on."""

import asyncio
import base64
import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldline
from foldline.agent.loop import Agent
from foldline.agent.mcp.mcp_client import ServerFailed
from foldline.agent.mcp.mcp_tools import Server, Servers, make_mcp_name
from foldline.agent.tool import Tool, said
from foldline.core.log import Interrupted, ToolReturned
from foldline.core.parts import Media, Text, text_of
from foldline.core.tokens import count_tokens
from foldline.errors import BadInput
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent
HOSTILE = [sys.executable, str(HERE / "hostile_server.py")]
REAL = HERE.parents[1] / ".rig" / "mcp" / "bin" / "mcp-server-time"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def notes(tmp_path):
    return tmp_path / "notes"


def hostile(notes, way="well", **more):
    return Server("h", command=[*HOSTILE, str(notes), way], **{"seconds": 20, **more})


async def noted(notes, word):
    """Wait until the server has written a word down."""
    for _ in range(1_000):
        if notes.exists() and word in notes.read_text():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the server never noted {word!r}")


@asynccontextmanager
async def begun(*servers, **more):
    async with Servers(servers, **more) as joined:
        await joined.wait_for_start(30)
        yield joined


def by_name(servers):
    return {tool.name: tool for tool in servers.tools}


def calls(*named_):
    return {
        "content": None,
        "tool_calls": [
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for at, (name, given) in enumerate(named_)
        ],
    }  # fmt: skip


async def yes(_call, _intent):
    return None


@asynccontextmanager
async def working(servers, *script, approve=yes, **more):
    """An agent that has the servers' tools, and a model that says what the script says."""
    given = {"model": "scripted", "window": 32_000, **more}
    async with foldline.aopen(":memory:", **given) as session:
        model = ScriptedModel(script)
        agent = Agent(session, model, approve=approve)
        servers.provide_tools(agent)
        yield agent


async def results(agent):
    events = await agent.session.history.events()
    return [event for _, event in events if isinstance(event, ToolReturned)]


# What a tool is called, and what a person is asked


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "a_b", "a-b"]), st.text(max_size=80)),
        unique=True,
        max_size=12,
    )
)
def test_names_are_taken_by_every_provider_and_are_of_one_tool_each(tools):
    """Whatever else there is and in which order: a tool's name is the same."""
    names: list[str] = []
    for server, tool in tools:
        names.append(make_mcp_name(server, tool, taken=names))
    assert all(re.fullmatch(r"mcp__[a-zA-Z0-9_-]{1,59}", name) for name in names)
    assert len({*names}) == len(names)
    assert names == [make_mcp_name(server, tool) for server, tool in tools]


def test_a_tool_that_takes_anothers_name_gets_one_of_its_own():
    odd = make_mcp_name("a", "*")
    assert make_mcp_name("a", odd.removeprefix("mcp__a__")) == odd
    again = make_mcp_name("a", odd.removeprefix("mcp__a__"), taken=[odd])
    assert again != odd
    assert len(make_mcp_name("a", "x" * 500)) == 64
    assert make_mcp_name("a", "x" * 500) != make_mcp_name("a", "x" * 501)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": "a__b", "command": ["x"]}, "'a__b' cannot be the name of an MCP server"),
        ({"name": "a_", "command": ["x"]}, "cannot be the name"),
        ({"name": "é", "command": ["x"]}, "cannot be the name"),
        ({"name": "x" * 33, "command": ["x"]}, "at most 32"),
        ({"name": "a"}, "'a' needs either a command or a url"),
        ({"name": "a", "command": ["x"], "url": "http://y"}, "needs either"),
        ({"name": "a", "command": ["x"], "seconds": 0}, "seconds = 0 is no time"),
    ],
)
def test_wrong_settings_are_told_with_the_servers_name(wrong, told):
    with pytest.raises(BadInput, match=re.escape(told)):
        Server(**wrong)


def test_two_servers_of_one_name_are_refused():
    with pytest.raises(BadInput, match="two MCP servers are called 'a'"):
        Servers([Server("a", command=["x"]), Server("a", url="http://y")])


async def test_a_stranger_is_asked_about_and_only_a_trusted_servers_word_counts(notes):
    """The annotation that a tool only reads is a hint of the server's."""
    async with begun(hostile(notes)) as servers:
        tools = by_name(servers)
        intent = tools["mcp__h__echo"].intent({"words": "hé"})
        assert intent.what == "call mcp tool echo of server h"
        assert json.loads(intent.detail) == {"words": "hé"}
        assert intent.rules == ("mcp: h echo", "mcp: h *")
        assert not any(tool.beside for tool in tools.values())
        star = next(tool for tool in servers.tools if tool.description == "It does *.")
        assert star.intent({}).rules[0] != "mcp: h *"  # a yes to it is not one to all
    async with begun(hostile(notes, trusted=True)) as servers:
        tools = by_name(servers)
        assert tools["mcp__h__echo"].intent({}) is None
        assert tools["mcp__h__echo"].beside
        assert tools["mcp__h__die"].intent({}) is not None
        assert not tools["mcp__h__die"].beside
    async with begun(hostile(notes, approve="never-ask", tools=["die", "echo", "none"])) as servers:
        assert [*by_name(servers)] == ["mcp__h__echo", "mcp__h__die"]
        assert all(tool.intent({}) is None and not tool.beside for tool in servers.tools)


async def test_what_nobody_approves_is_not_called(notes):
    async with begun(hostile(notes)) as servers:
        script = calls(("mcp__h__hang", {})), "fine"
        async with working(servers, *script, approve=None) as agent:
            await agent.turn("go")
            (result,) = await results(agent)
            assert not result.ok
            assert "nobody is here to approve" in text_of(result.parts)
    assert "hanging" not in notes.read_text()


def test_the_sdk_is_imported_only_where_a_server_is_started():
    """It takes a second."""
    program = (
        "import sys, foldline.apps.cli.app, foldline.agent.loop; from foldline.agent.mcp import mcp_tools as tools;"
        "import foldline.agent.mcp.mcp_server; tools.Servers([tools.Server('a', command=['x'])]);"
        "assert not {'mcp', 'mcp_types', 'anyio', 'pydantic'} & {*sys.modules}"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# What comes in


async def test_r57_every_kind_of_content_becomes_parts_and_none_is_dropped(notes):
    async with begun(hostile(notes)) as servers:
        odd = await by_name(servers)["mcp__h__odd"].run({})
        assert odd.ok
        assert odd.parts == (
            Text("plain \U0001f600"),
            Media("audio", mime="audio/wav", base64=base64.b64encode(b"RIFF1234").decode()),
            Text('{"type": "image", "data": "*** no base64 ***", "mimeType": "image/png"}'),
            Text('{"type": "image", "data": "AAAA", "mimeType": "text/html"}'),
            Text('{"type": "image", "data": "", "mimeType": "image/png"}'),
            Text("[resource file:///a.txt text/plain]\ninside"),
            Media("file", mime="application/pdf", base64="JVBERg==", name="file:///a.pdf"),
            Text('{"name": "b", "uri": "file:///b.txt", "description": "a link", "type": "resource_link"}'),
            Text('{"type": "hologram", "frames": [1, 2, 3]}'),
            Text('{"type": "text", "text": 5}'),
        )  # fmt: skip
        # Structured content comes once, also where it is not what the tool's schema says.
        for name in ("structured", "twice"):
            assert (await by_name(servers)[f"mcp__h__{name}"].run({})).parts == (
                Text('{"rows": [1, 2]}'),
            )
        wrong = await by_name(servers)["mcp__h__wrong"].run({})
        assert (wrong.parts, wrong.ok) == ((Text("no such row"),), False)


async def test_r57_ten_megabytes_a_picture_and_deep_json_are_stored_whole_and_the_request_fits(
    notes,
):
    """R-57, through the agent and its session; what the model is sent is within its window."""
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    script = (
        calls(("mcp__h__big", {}), ("mcp__h__picture", {}), ("mcp__h__deep", {})),
        calls(("mcp__h__deep", {"last": True}), ("mcp__h__deep", {"depth": 50})),
        "done",
    )
    async with begun(hostile(notes)) as servers, working(servers, *script) as agent:
        ended = await agent.turn("go")
        assert ended.how == "answered"
        big, picture, first, last, fifty = await results(agent)
        assert all(result.ok for result in (big, picture, first, last, fifty))
        assert text_of(big.parts) == "0123456789abcde\n" * (10 * 2**16)
        (media,) = picture.parts
        assert isinstance(media, Media)
        assert len(base64.b64decode(media.base64)) > 5 * 2**20
        assert deep in text_of(first.parts)
        assert deep in text_of(last.parts)
        assert text_of(fifty.parts) == '{"a": ' * 50 + "1" + "}" * 50
        assert agent.session.report.total <= 32_000
        for request in agent.model.requests:
            words = re.sub(r"data:image/png;base64,[^\"]*", "", json.dumps(request))
            assert count_tokens(words) < 32_000


# What servers do


async def test_a_server_that_dies_hangs_refuses_or_prints_rubbish_is_named_and_the_agent_goes_on(
    notes,
):
    """The model reads which server it was, and what; the next call finds it started again."""
    names = ("die", "echo", "chatter", "refuse", "hang", "echo")
    script = [calls((f"mcp__h__{name}", {})) for name in names] + ["done"]
    async with begun(hostile(notes, seconds=2)) as servers, working(servers, *script) as agent:
        ended = await agent.turn("go")
        assert ended == ("answered", "done")
        told = [(text_of(result.parts), result.ok) for result in await results(agent)]
        echoed = ('["echo", {}, "-", true]', True)
        assert told == [
            ("mcp__h__die failed: the MCP server 'h' ended in the middle of the call; what it has done is unknown. It is started again at the next call", False),
            echoed,
            ("chattered", True),
            ("mcp__h__refuse failed: the MCP server 'h' refused: not with these arguments", False),
            ("mcp__h__hang failed: the MCP server 'h' gave no answer within 2 s; it was notified", False),
            echoed,
        ]  # fmt: skip
    assert notes.read_text().count("started") == 2
    assert "cancelled" in notes.read_text()


async def test_a_dead_server_is_started_once_a_call_and_its_last_words_are_told(notes):
    script = [calls(("mcp__h__die", {})), *[calls(("mcp__h__echo", {}))] * 2, "done"]
    async with begun(hostile(notes, "once")) as servers, working(servers, *script) as agent:
        await agent.turn("go")
        first, *later = [text_of(result.parts) for result in await results(agent)]
        assert "ended in the middle" in first
        for told in later:
            assert "the MCP server 'h' did not start: " in told
            assert "no licence found" in told
        assert "no licence found" in servers.faults["h"]
        assert "mcp__h__echo" in agent.tools  # it may come back
    assert notes.read_text().count("started") == 3


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (Server("h", command=["/nowhere/at-all"]), "No such file"),
        (Server("h", command=[*HOSTILE, "{notes}", "dead"]), "no licence found"),
        (Server("h", command=[*HOSTILE, "{notes}", "mute"], seconds=0.5), "nothing within 0.5 s"),
        (Server("h", url="http://127.0.0.1:9/mcp"), ""),
    ],
)
async def test_a_server_that_does_not_start_is_told_and_the_others_work(notes, server, told):
    command = [word.format(notes=notes) for word in server.command]
    broken = Server("broken", command=command, url=server.url, seconds=server.seconds)
    async with begun(broken, hostile(notes)) as servers:
        async with working(servers, calls(("mcp__h__echo", {})), "done") as agent:
            await agent.turn("go")
            assert [result.ok for result in await results(agent)] == [True]
        assert [*servers.faults] == ["broken"]
        assert told in servers.faults["broken"]
        assert servers.faults["broken"]


NOISY = """
import asyncio, sys
from pathlib import Path
from foldline.agent.mcp.mcp_tools import Server, Servers

async def main(logs, *command):
    async with Servers([Server("h", command=command)], logs=Path(logs)) as servers:
        await servers.wait_for_start(30)
        for name in ("chatter", "die", "echo"):
            tool = next(one for one in servers.tools if one.name == f"mcp__h__{name}")
            await asyncio.gather(tool.run({}), return_exceptions=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_rubbish_before_the_first_message_and_complaints_reach_no_terminal(notes, tmp_path):
    """In a program without logging of its own: neither the server's words nor the SDK's."""
    command = [sys.executable, "-c", NOISY, tmp_path / "logs", *HOSTILE, notes, "garbage"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "logs" / "h.log").read_text() == "I am dying\n"
    assert notes.read_text().count("started") == 2


async def test_tools_that_change_are_there_when_the_model_is_asked_next(notes):
    script = calls(("mcp__h__grow", {})), calls(("mcp__h__grown16", {})), "done"
    async with begun(hostile(notes)) as servers, working(servers, *script) as agent:
        own = Tool(name="own", description="own", schema={"type": "object"}, run=lambda _: said(""))
        agent.tools["own"] = own
        await agent.turn("go")
        offered = [
            [tool["function"]["name"] for tool in request["tools"]]
            for request in agent.model.requests
        ]
        assert "mcp__h__grown16" not in offered[0]
        assert "mcp__h__grown16" in offered[1]
        assert offered[1] == offered[2]
        assert offered[0][0] == "own"  # and what is not of a server stays
        assert [result.ok for result in await results(agent)] == [True, True]


async def test_r22_a_call_that_a_person_stops_ends_at_once_and_the_server_is_told(notes, timed):
    async with begun(hostile(notes)) as servers:
        async with working(servers, calls(("mcp__h__hang", {})), "done") as agent:
            turn = asyncio.ensure_future(agent.turn("go"))
            await noted(notes, "hanging")
            stopped = time.perf_counter()
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
            assert time.perf_counter() - stopped < timed(1)
            assert turn.cancelled()
            events = [event for _, event in await agent.session.history.events()]
            assert any(isinstance(event, Interrupted) for event in events)
        await noted(notes, "cancelled")
        assert (await by_name(servers)["mcp__h__echo"].run({})).ok


async def test_a_server_that_reads_no_more_holds_nobody_up(notes, timed):
    """More than a pipe holds: the call cannot even be sent."""
    async with begun(hostile(notes, seconds=1)) as servers:
        doze, echo = (by_name(servers)[f"mcp__h__{name}"] for name in ("doze", "echo"))
        dozing = asyncio.ensure_future(doze.run({}))
        await noted(notes, "dozing")
        with pytest.raises(ServerFailed, match="'h' takes nothing in, for 1 s now"):
            await echo.run({"words": "x" * 1_000_000})
        call = asyncio.ensure_future(echo.run({"words": "y" * 1_000_000}))
        await asyncio.sleep(0.1)
        stopped = time.perf_counter()
        call.cancel()
        await asyncio.gather(call, dozing, return_exceptions=True)
        assert time.perf_counter() - stopped < timed(1)
        assert call.cancelled()


async def test_calls_run_beside_each_other_and_leaving_ends_the_process(notes):
    async with begun(hostile(notes, env={"SECRET": "s"})) as servers:
        echo = by_name(servers)["mcp__h__echo"]
        many = await asyncio.gather(*(echo.run({"words": str(at)}) for at in range(50)))
        heard = [json.loads(text_of(one.parts)) for one in many]
        assert heard == [["echo", {"words": str(at)}, "s", True] for at in range(50)]
    number = int(notes.read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


async def test_a_server_that_is_left_while_it_starts_is_gone(notes):
    async with Servers([hostile(notes, "mute")]):
        await noted(notes, "started")
    with pytest.raises(ProcessLookupError):
        os.kill(int(notes.read_text().split()[1]), 0)


# Servers of the official SDK: the newest protocol, over stdio and HTTP


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def serving(number):
    server = subprocess.Popen(
        [sys.executable, str(HERE / "sdk_server.py"), str(number)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", number)) == 0:
                return server
        time.sleep(0.05)
    raise AssertionError("the server does not listen")


async def used(server, timed, *before):
    """What every server of the SDK's must do; `before` the model calls for the tool that is new."""
    new = calls(("mcp__s__fly", {}))
    script = calls(("mcp__s__learn", {"name": "fly"})), *before, new, "done"
    async with begun(server) as servers:
        assert servers.faults == {}
        async with working(servers, *script) as agent:
            await agent.turn("go")
            told = [text_of(result.parts) for result in await results(agent)]
            assert told[0].startswith("learned")
            assert told[-1].startswith("fly works")
        assert by_name(servers)["mcp__s__look"].beside
        large = await by_name(servers)["mcp__s__large"].run({"size": 4_000_000})
        assert len(large.parts[0].text) == 4_000_000
        slow = asyncio.ensure_future(by_name(servers)["mcp__s__slow"].run({"seconds": 60}))
        await asyncio.sleep(0.3)
        stopped = time.perf_counter()
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert time.perf_counter() - stopped < timed(1)


@pytest.mark.real
async def test_a_server_of_the_newest_protocol_over_stdio(timed):
    await used(
        Server("s", command=[sys.executable, str(HERE / "sdk_server.py")], trusted=True), timed
    )


@pytest.mark.real
async def test_a_server_over_http_and_the_same_address_after_it_was_restarted(timed):
    number = port()
    address = f"http://127.0.0.1:{number}/mcp"
    first = serving(number)
    try:
        # Over HTTP a result and the notice that tools have changed come in any order.
        await used(
            Server("s", url=address, trusted=True), timed, calls(("mcp__s__slow", {"seconds": 1}))
        )
        async with begun(Server("s", url=address, seconds=10)) as servers:
            look = by_name(servers)["mcp__s__look"]
            first.kill()
            first.wait()
            with pytest.raises(Exception, match="the MCP server 's'"):
                await look.run({"words": "nobody"})
            first = serving(number)
            told = await look.run({"words": "somebody"})
            assert text_of(told.parts).startswith("looked at somebody")
    finally:
        first.kill()
        first.wait()


@pytest.mark.real
async def test_a_real_server_of_somebody_elses_is_used_by_the_agent():
    """`mcp-server-time` from PyPI, in an environment of its own: `just mcp`."""
    assert REAL.exists(), "`just mcp` makes its environment"
    given = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo", "time": "12:00"}
    script = (
        calls(("mcp__time__convert_time", given)),
        calls(("mcp__time__convert_time", {**given, "target_timezone": "Nowhere"})),
        "It is nine in the evening.",
    )
    asked: list[str] = []

    async def agreeing(_call, intent):
        asked.append(intent.what)

    async with begun(Server("time", command=[str(REAL), "--local-timezone", "UTC"])) as servers:
        assert servers.faults == {}
        async with working(servers, *script, approve=agreeing) as agent:
            ended = await agent.turn("How late is noon of UTC in Tokyo?")
            assert ended.words == "It is nine in the evening."
            good, bad = await results(agent)
            assert good.ok
            assert "T21:00:00+09:00" in text_of(good.parts)
            assert not bad.ok
            assert "Nowhere" in text_of(bad.parts)
    assert asked == ["call mcp tool convert_time of server time"] * 2
