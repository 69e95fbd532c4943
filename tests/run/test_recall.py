"""`foldline run --recall`: what each agent is given, and real agents that look back."""

import json
import re
import shutil
import subprocess
import tomllib

import pytest
from agents import install
from processes import list_processes
from scripted import start_provider
from test_real_agents import AGENTS, FOLDLINE, make_environment
from upstream import prompt_of

from foldline.apps.run import agent_setups
from foldline.apps.run.agent_setups import Launch, RecallServer, add_agent_recall

ADDRESS = "postgresql://me:secret@host/talks"
ADDED = ("claude", "codex", "opencode")


@pytest.fixture
def server(tmp_path):
    return RecallServer(ADDRESS, "acme", tmp_path / "audit.jsonl", tmp_path)


def test_claude_is_given_a_file_of_servers(server, tmp_path):
    made = add_agent_recall("/usr/bin/claude", Launch(arguments=("--settings", "{}")), server)
    assert made.arguments[:2] == ("--settings", "{}")
    file, allowed = made.arguments[2:]
    assert file == f"--mcp-config={tmp_path / 'recall.json'}", "one word: a prompt may follow"
    assert allowed == "--allowedTools=mcp__foldline"
    (told,) = json.loads((tmp_path / "recall.json").read_text())["mcpServers"].values()
    assert [told["command"], *told["args"]] == server.command
    assert told["alwaysLoad"] is True, "tools that came later would make a request a cache miss"


def test_codex_is_given_the_server_by_an_argument(server):
    made = add_agent_recall("codex", Launch(arguments=("-c", "a=1")), server)
    assert made.arguments[:3] == ("-c", "a=1", "-c")
    told = tomllib.loads(made.arguments[3])["mcp_servers"]["foldline"]
    assert [told["command"], *told["args"]] == server.command
    assert told["env_vars"] == ["FOLDLINE_STORE"], "Codex passes on no other variable"
    assert told["required"] is True, "it waits for the tools"
    assert told["default_tools_approval_mode"] == "approve"


def test_opencode_is_given_the_server_beside_the_users_own(server):
    own = {"theme": "x", "mcp": {"issues": {"type": "remote", "url": "http://issues"}}}
    before = Launch(environment={"OPENCODE_CONFIG_CONTENT": json.dumps(own), "A": "1"})
    made = add_agent_recall("opencode", before, server)
    given = json.loads(made.environment["OPENCODE_CONFIG_CONTENT"])
    assert given["theme"] == "x"
    assert given["mcp"]["issues"] == own["mcp"]["issues"]
    assert given["mcp"]["foldline"]["command"] == server.command
    assert made.environment["A"] == "1"


@pytest.mark.parametrize("agent", ADDED)
def test_the_stores_address_is_in_a_variable_alone(server, agent, tmp_path):
    made = add_agent_recall(agent, Launch(), server)
    assert made.environment["FOLDLINE_STORE"] == ADDRESS
    files = [file.read_text() for file in tmp_path.iterdir()]
    assert "secret" not in " ".join((*made.arguments, *server.command, *files))


@pytest.mark.parametrize("agent", ["pi", "gemini", "aider", "my-agent"])
def test_others_have_the_gateways_own_tool(server, agent):
    before = Launch(arguments=("-x",))
    assert add_agent_recall(agent, before, server) == before


def test_without_the_extra_the_gateway_offers_its_tool_and_says_what_more_there_is(
    server, monkeypatch
):
    monkeypatch.setattr(agent_setups, "find_spec", lambda _: None)
    made = add_agent_recall("claude", Launch(), server)
    assert (made.arguments, made.environment) == ((), {})
    assert "pip install 'foldline[mcp]'" in made.remarks[0]


OWN = {
    "claude": (".claude/settings.json", '{"permissions": {"allow": ["Bash(ls)"]}}'),
    "codex": (".codex/config.toml", '[mcp_servers.mine]\ncommand = "true"\nenabled = false\n'),
    "opencode": (
        ".config/opencode/opencode.json",
        # Without the schema, opencode itself adds it.
        json.dumps(
            {
                "$schema": "https://opencode.ai/config.json",
                "mcp": {"mine": {"type": "local", "command": ["true"], "enabled": False}},
            }
        ),
    ),
}
"""Settings that the user has."""
TURNS = 3


@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing: no agents to install")
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.long] * (one != "claude")) for one in ADDED],
)
def test_a_real_agents_model_looks_back_and_nothing_is_left(name, tmp_path):
    install(name)
    home, work, temporary = (tmp_path / one for one in ("home", "work", "tmp"))
    for folder in (home, work, temporary):
        folder.mkdir()
    path, text = OWN[name]
    (home / path).parent.mkdir(parents=True)
    (home / path).write_text(text)
    agent = AGENTS[name]
    with start_provider(
        tmp_path, window=agent.window, rounds=12, reports_cache=True, recalls=True
    ) as provider:
        env = make_environment(agent, name, home) | {"TMPDIR": str(temporary)}
        env |= {"ANTHROPIC_BASE_URL": provider.url, "OPENAI_BASE_URL": f"{provider.url}/v1"}
        for number in range(1, TURNS + 1):
            words = agent.first if number == 1 else agent.later
            # Codex's newest session here is the only one.
            words = ["--last" if word == "{session}" else word for word in words]
            command = [*words, prompt_of(number)]
            done = subprocess.run(
                [FOLDLINE, "run", "--recall", "--window", str(agent.window), *command],
                cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=250, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"turn {number}: {done.stdout}\n{done.stderr}"
            assert f"Turn {number} is done" in done.stdout, done.stdout
        bodies = [json.loads(raw) for raw in provider.list_sent()]
    asked = [body for body in bodies if list_tools(body)]
    offered = [[one for one in list_tools(body) if one.endswith("recall")] for body in asked]
    assert all(names == [RECALL[name]] for names in offered), "from the first request on, and alone"
    results = [(at, found) for at, body in enumerate(asked) if (found := find_recalled(body))]
    assert results, "the model looked back"
    for at, result in results:
        lines = re.findall(r"^\d+: (entry .+)$", result, re.MULTILINE)
        assert len(lines) > 100, result[:500]
        before = json.dumps(asked[at - 1])
        gone = [line for line in lines if line not in before]
        assert len(gone) > 0.9 * len(lines), "what had been folded, but for what a fold quotes"
    assert (home / path).read_text() == text, "the user's settings are as they were"
    assert not [*temporary.glob("foldline*")], "the run's folder is gone"
    assert not list_processes(home)


RECALL = {
    "claude": "mcp__foldline__recall",
    "codex": "mcp__foldline/recall",
    "opencode": "foldline_recall",
}


def list_tools(body):
    """The names of the tools in a request; Codex groups those of a server."""
    found = []
    for tool in body.get("tools") or ():
        inside = [f"{tool['name']}/{one['name']}" for one in tool.get("tools") or ()]
        found += inside or [tool.get("name") or tool["type"]]
    return found


def find_recalled(body):
    """What came back for a call of the tool, if that is the newest in a request; else nothing."""
    items = body.get("input") or [
        block
        for message in body["messages"]
        for block in message["content"]
        if isinstance(block, dict)
    ]
    last = items[-1]
    own = last.get("call_id") or last.get("tool_use_id")
    called = [one for one in items if own and own in (one.get("call_id"), one.get("id"))]
    if not called or not called[0].get("name", "").endswith("recall"):
        return ""
    blocks = last.get("output") or last["content"]
    return blocks if isinstance(blocks, str) else "\n".join(one["text"] for one in blocks)
