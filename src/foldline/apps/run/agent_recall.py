"""Give an agent the tools of `foldline mcp` for one run, without a change to its settings.

The agent starts the server itself, from a file in the run's folder or from arguments of the run. It
answers for the conversation that asks, of those that the run's gateway notes in its audit log.
Agents that take no server for one run have the tool `recall` of the gateway instead.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foldline.apps.run.agent_setups import Launch

_NAME = "foldline"  # of the server: agents put it before the names of its tools
_STORE = "FOLDLINE_STORE"
_SECONDS = 30  # to start it: a busy machine takes some


@dataclass(frozen=True, slots=True)
class RecallServer:
    """The MCP server of a run."""

    store: str
    tenant: str
    audit: Path
    folder: Path
    """The run's own folder, which is deleted when the run ends."""

    @property
    def command(self) -> list[str]:
        """Its command; the store is named by a variable, as its address may hold a password."""
        options = ("--audit", str(self.audit), "--tenant", self.tenant)
        return [sys.executable, "-m", "foldline", "mcp", *options]


def add_agent_recall(program: str, launch: Launch, server: RecallServer) -> Launch:
    """Add the server to how an agent is started, if it takes one and the extra is installed."""
    add = _ADDED.get(Path(program).name.removesuffix(".exe"))
    if add is None:
        return launch
    if find_spec("mcp") is None:
        missing = "only `recall` is offered; with pip install 'foldline[mcp]' also a search"
        return replace(launch, remarks=(*launch.remarks, missing))
    added = add(launch, server)
    return replace(added, environment={**added.environment, _STORE: server.store})


def _add_to_claude(launch: Launch, server: RecallServer) -> Launch:
    """Name a file of servers; a plugin's folder would be noted in the user's own files.

    Both options take many values, so each is one word: the user's prompt follows it.
    """
    command, *arguments = server.command
    file = server.folder / "recall.json"
    # It waits for such a server: tools that come later would make the next request a cache miss.
    servers = {_NAME: {"command": command, "args": arguments, "alwaysLoad": True}}
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    options = (f"--mcp-config={file}", f"--allowedTools=mcp__{_NAME}")
    return replace(launch, arguments=(*launch.arguments, *options))


def _add_to_codex(launch: Launch, server: RecallServer) -> Launch:
    """Name the server by `-c`, whole, so that nothing of another one of this name is left."""
    command, *arguments = server.command
    settings: dict[str, Any] = {
        "command": command,
        "args": arguments,
        "env_vars": [_STORE],
        "startup_timeout_sec": _SECONDS,
        "required": True,
        "default_tools_approval_mode": "approve",
    }
    written = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    return replace(
        launch, arguments=(*launch.arguments, "-c", f"mcp_servers.{_NAME}={{{written}}}")
    )


def _add_to_opencode(launch: Launch, server: RecallServer) -> Launch:
    variable = "OPENCODE_CONFIG_CONTENT"
    content: dict[str, Any] = json.loads(launch.environment.get(variable, "{}"))
    local = {"type": "local", "command": server.command, "timeout": _SECONDS * 1_000}
    servers = {**content.get("mcp", {}), _NAME: {**local, "enabled": True}}
    written = json.dumps({**content, "mcp": servers})
    return replace(launch, environment={**launch.environment, variable: written})


_ADDED: dict[str, Callable[[Launch, RecallServer], Launch]] = {
    "claude": _add_to_claude,
    "codex": _add_to_codex,
    "opencode": _add_to_opencode,
}
