"""Real agents: which versions, how they are installed and set up, and how one is taken through the turns of a job.

Each agent has a HOME of its own below the run's folder, so that nobody's settings are read, and talks to loopback only.
"""

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upstream import prompt_of

ROOT = Path(__file__).parents[2]
RIG = ROOT / ".rig" / "clients"
_HERE = Path(__file__).parent
KEY = "sk-scripted"
CLAUDE, GPT, GEMINI = "claude-sonnet-4-5", "gpt-5", "gemini-3-pro-preview"
INSTALL_SECONDS = 240
TURN_SECONDS = 180
_INHERITED = ("PATH", "LANG", "TERM", "TMPDIR", "SSL_CERT_FILE")

PACKAGES = {
    "claude": ("npm", "@anthropic-ai/claude-code@2.1.197"),
    "claude-new": ("npm", "@anthropic-ai/claude-code@2.1.328"),  # it defers tools, and says more in mid-conversation
    "codex": ("npm", "@openai/codex@0.169.0"),
    "opencode": ("npm", "opencode-ai@1.18.33"),
    "pi": ("npm", "@mariozechner/pi-coding-agent@0.73.1"),
    "gemini": ("npm", "@google/gemini-cli@0.61.0"),
    "qwen": ("npm", "@qwen-code/qwen-code@0.24.4"),
    "vercel": ("npm", "ai@6.0.326", "@ai-sdk/openai@3.0.139", "@ai-sdk/anthropic@3.0.138"),
    "llm": ("pip", "llm==0.36"),
    "aider": ("pip", "aider-chat==0.86.2"),
    "langchain": ("foldline", "langchain==1.4.7", "langchain-openai==1.7.3", "openai==3.49.0"),
    "litellm": ("foldline", "litellm[mcp]==1.106.2", "openai==2.54.0"),  # tools need its extra; it takes no openai 3
    "pydantic-ai": ("foldline", "pydantic-ai-slim[openai,anthropic]==2.66.0", "openai==3.49.0", "anthropic==2.8.0"),
    "openai-agents": ("foldline", "openai-agents==0.24.0", "openai==3.49.0"),
    "adk": ("foldline", "google-adk==2.13.0", "google-genai==2.34.0"),
    "fastapi": ("foldline", "fastapi==0.163.2", "httpx==0.28.1", "openai==3.49.0"),
    "agent-framework": ("foldline", "agent-framework==1.23.0", "openai==3.49.0"),
}  # fmt: skip
"""What is installed below `.rig/clients`, each in a folder of its own: by npm, by pip, or by pip beside this checkout."""


def install(package: str) -> None:
    """Install a package at its pinned version, unless it is there."""
    if package not in PACKAGES:  # it comes with the development environment
        return
    RIG.mkdir(parents=True, exist_ok=True)
    with (RIG / f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tests at a time may want the same one
        _install_pins(RIG / package, *PACKAGES[package])


def _install_pins(folder: Path, kind: str, *pins: str) -> None:
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text().split() == [*pins]:
        return
    folder.mkdir(exist_ok=True)
    if kind == "npm":
        quiet = ("--silent", "--no-audit", "--no-fund", "--no-package-lock")
        commands = [["npm", "install", *quiet, "--prefix", folder, *pins]]
    else:
        here = ["--editable", ROOT] if kind == "foldline" else []
        target = ["--python", folder / "bin" / "python", *here]
        commands = [
            ["uv", "venv", "--quiet", "--clear", folder],
            ["uv", "pip", "install", "--quiet", *target, *pins],
        ]
    for command in commands:
        subprocess.run(command, check=True, timeout=INSTALL_SECONDS)
    stamp.write_text("\n".join(pins))


@dataclass(frozen=True)
class Place:
    """Where a run is: the provider's address without `/v1`, and the folder for all that the run writes."""

    base: str
    folder: Path
    window: int = 0
    """For an agent that has Foldline inside: the window in tokens; 0 is a plain run."""

    @property
    def home(self) -> Path:
        """The agent's HOME."""
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """The folder that the agent works in."""
        return self.folder / "work"

    @property
    def store(self) -> Path:
        """Foldline's store."""
        return self.folder / "store.db"

    @property
    def recording(self) -> Path:
        """Where an agent that has Foldline inside writes its requests."""
        return self.folder / "exchanges.jsonl"

    def write(self, path: str, content: str | dict[str, Any]) -> None:
        """Write a file of settings below HOME."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))


@dataclass(frozen=True)
class Agent:
    """How an agent is set up and spoken to."""

    package: str
    configure: Callable[[Place], dict[str, str]]
    """Writes its settings, and gives its environment."""
    command: Callable[[str, bool], list[Any]]
    """Its command line for a prompt; the flag says whether it continues. Talkers are started once, without one."""
    is_talker: bool = False
    """Whether one process takes all turns: lines of stream-json in and out, as Claude Code speaks it."""
    has_tools: bool = True
    repeats_results: bool = False
    """Whether it sends results more than once, which not every provider takes."""
    has_foldline: bool = False
    """Whether Foldline is inside the agent's process, so that there is no gateway, and the agent itself records."""


@dataclass(frozen=True)
class Turn:
    """How one turn ended."""

    number: int
    is_finished: bool
    output: str


async def run_agent(agent: Agent, place: Place, turns: int) -> list[Turn]:
    """Take an agent through the turns of a job."""
    place.home.mkdir(parents=True)
    place.work.mkdir(parents=True)
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    env = inherited | {"HOME": str(place.home), "NO_COLOR": "1", "CI": "1"} | agent.configure(place)
    run = run_talker if agent.is_talker else run_processes
    return await run(agent, place, env, turns)


async def run_processes(agent: Agent, place: Place, env: dict[str, str], turns: int) -> list[Turn]:
    """One process for each turn."""
    done = []
    for number in range(1, turns + 1):
        process = await start(agent, agent.command(prompt_of(number), number > 1), place, env)
        try:
            printed, _ = await asyncio.wait_for(process.communicate(), TURN_SECONDS)
        except TimeoutError:
            printed = b"took too long"
        finally:
            await end(process)
        text = printed.decode(errors="replace")
        is_finished = process.returncode == 0 and f"Turn {number} is done" in text
        done.append(Turn(number, is_finished, text))
    return done


async def run_talker(agent: Agent, place: Place, env: dict[str, str], turns: int) -> list[Turn]:
    """One process for all turns; the next is asked when the one before has its result."""
    process = await start(agent, agent.command("", False), place, env)  # noqa: FBT003 - it does not continue
    done = []
    try:
        for number in range(1, turns + 1):
            message = {"role": "user", "content": prompt_of(number)}
            process.stdin.write(json.dumps({"type": "user", "message": message}).encode() + b"\n")
            line, event = b"{}", {}
            while line and event.get("type") != "result":
                line = await asyncio.wait_for(process.stdout.readline(), TURN_SECONDS)
                event = json.loads(line or "{}")
            text = str(event.get("result"))
            done.append(
                Turn(number, not event.get("is_error") and f"Turn {number} is done" in text, text)
            )
        process.stdin.close()
    except (TimeoutError, OSError) as error:
        done.append(Turn(len(done) + 1, False, repr(error)))  # noqa: FBT003
    finally:
        await end(process)
    return done


async def start(
    agent: Agent, command: list[Any], place: Place, env: dict[str, str]
) -> asyncio.subprocess.Process:
    """Start a process in a group of its own. Nobody reads a talker's errors while it talks: they go to a file."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    with (place.home / "errors.txt").open("w") as errors:
        return await asyncio.create_subprocess_exec(
            *map(str, command), cwd=place.work, env=env, limit=50_000_000, start_new_session=True, stdout=pipe,
            stdin=pipe if agent.is_talker else nothing, stderr=errors if agent.is_talker else asyncio.subprocess.STDOUT,
        )  # fmt: skip


async def end(process: asyncio.subprocess.Process) -> None:
    """Wait a moment for a process to end by itself, then end it and what it started."""
    try:
        await asyncio.wait_for(process.wait(), 5)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def make_claude(*, is_talker: bool = False, own_compaction: int = 0) -> Agent:
    """Claude Code; `own_compaction` is the window by which it compacts by itself."""

    def configure(place: Place) -> dict[str, str]:
        compaction = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(own_compaction)}
        return {
            "ANTHROPIC_BASE_URL": place.base,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            **(compaction if own_compaction else {"DISABLE_AUTO_COMPACT": "1"}),
        }

    def command(prompt: str, continues: bool) -> list[Any]:  # noqa: FBT001
        talk = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
        said = talk if is_talker else (prompt, *(("--continue",) if continues else ()))
        program = RIG / "claude/node_modules/.bin/claude"
        return [program, "-p", *said, "--model", CLAUDE, "--allowedTools", "Bash"]

    return Agent("claude", configure, command, is_talker=is_talker)


def make_codex(*, provider: str = "scripted", own_compaction: int = 0) -> Agent:
    """Codex; a provider named `OpenAI` makes it compact remotely. `own_compaction` is the tokens above which it compacts."""

    def configure(place: Place) -> dict[str, str]:
        settings = {
            "model": GPT,
            "model_provider": "scripted",
            "web_search": "disabled",
            "model_context_window": own_compaction * 2 or 10_000_000,
            "model_auto_compact_token_limit": own_compaction or 9_000_000,
            "analytics.enabled": False,
            f'projects."{place.work}".trust_level': "trusted",
        }
        scripted = {
            "name": provider,
            "base_url": f"{place.base}/v1",
            "env_key": "AGENT_KEY",
            "wire_api": "responses",
            "supports_websockets": False,
            "request_max_retries": 1,  # else a refusal takes minutes
            "stream_max_retries": 1,
        }
        settings |= {f"model_providers.scripted.{name}": value for name, value in scripted.items()}
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        place.write(".codex/config.toml", "\n".join(lines))
        return {"AGENT_KEY": KEY}

    def command(prompt: str, continues: bool) -> list[Any]:  # noqa: FBT001
        again = ("resume", "--last") if continues else ()
        free = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
        return [RIG / "codex/node_modules/.bin/codex", "exec", *again, *free, prompt]

    return Agent("codex", configure, command)


def make_opencode(model: str) -> Agent:
    """Opencode with a provider's model; it never compacts by itself in a window of ten million."""

    def configure(place: Place) -> dict[str, str]:
        limit = {"context": 10_000_000, "output": 4096}
        options = {"baseURL": f"{place.base}/v1", "apiKey": KEY}
        compatible = {"npm": "@ai-sdk/openai-compatible", "name": "scripted"}
        providers = {
            "scripted": {**compatible, "options": options, "models": {GPT: {"limit": limit}}},
            "anthropic": {"options": options, "models": {CLAUDE: {"limit": limit}}},
            "openai": {"options": options, "models": {GPT: {"limit": limit}}},
        }
        settings = {"autoupdate": False, "share": "disabled", "permission": {"bash": "allow"}}
        place.write(".config/opencode/opencode.json", {**settings, "provider": providers})
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}  # fmt: skip

    def command(prompt: str, continues: bool) -> list[Any]:  # noqa: FBT001
        program = RIG / "opencode/node_modules/.bin/opencode"
        return [program, "run", *(("-c",) if continues else ()), "-m", model, prompt]

    return Agent("opencode", configure, command)


def make_pi(api: str, path: str, model: str) -> Agent:
    """Pi over one of its APIs, without its own compaction."""

    def configure(place: Place) -> dict[str, str]:
        models = [{"id": model, "contextWindow": 10_000_000, "maxTokens": 4096}]
        provider = {"baseUrl": place.base + path, "apiKey": KEY, "api": api, "models": models}
        place.write(".pi/agent/models.json", {"providers": {"scripted": provider}})
        place.write(".pi/agent/settings.json", {"compaction": {"enabled": False}})
        return {"PI_OFFLINE": "1"}

    def command(prompt: str, continues: bool) -> list[Any]:  # noqa: FBT001
        again = ("-c",) if continues else ()
        program = RIG / "pi/node_modules/.bin/pi"
        return [
            program,
            "-p",
            *again,
            "--offline",
            "--provider",
            "scripted",
            "--model",
            model,
            prompt,
        ]

    return Agent("pi", configure, command)


def make_gemini(model: str, *, is_resumed: bool = False) -> Agent:
    """gemini-cli with a model, as editors run it, or each turn by itself behind `--resume`.

    It never compacts by itself: it believes in a window of a million. Of results above 80,000 tokens it masks the oldest.
    """

    def configure(place: Place) -> dict[str, str]:
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "telemetry": {"enabled": False},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False},
        }
        place.write(".gemini/settings.json", settings)
        return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": place.base}

    def command(prompt: str, continues: bool) -> list[Any]:  # noqa: FBT001
        if not is_resumed:
            return [sys.executable, _HERE / "acp_agent.py", program, model]
        again = ("--resume", "latest") if continues else ()
        return [program, *again, "-m", model, "--yolo", "--skip-trust", "-p", prompt]

    program = RIG / "gemini/node_modules/.bin/gemini"
    return Agent("gemini", configure, command, is_talker=not is_resumed, repeats_results=is_resumed)


def make_script(package: str, command: list[Any]) -> Agent:
    """A small program of ours that uses a library, one process for all turns."""

    def configure(place: Place) -> dict[str, str]:
        return {"AGENT_BASE": place.base, "AGENT_KEY": KEY, "AGENT_MODULES": f"{RIG / package}/"}

    return Agent(package, configure, lambda *_: [*command, "--talk"], is_talker=True)


def make_framework(package: str, script: str, *options: str, has_foldline: bool = True) -> Agent:
    """A small program of ours over a framework, with Foldline inside, or plain to go through a gateway."""

    def configure(place: Place) -> dict[str, str]:
        is_inside = has_foldline and place.window
        window = {"AGENT_WINDOW": str(place.window)} if is_inside else {}
        return {
            "AGENT_BASE": place.base,
            "AGENT_KEY": KEY,
            "AGENT_STORE": str(place.store),
            "AGENT_RECORDING": str(place.recording),
            "PYTHONPATH": str(ROOT / "src"),  # `.rig` may be shared with another checkout
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            **window,
        }

    command = [RIG / package / "bin" / "python", _HERE / "frameworks" / script, *options]
    return Agent(package, configure, lambda *_: command, is_talker=True, has_foldline=has_foldline)


def make_llm() -> Agent:
    """llm, which has no tools here."""

    def configure(place: Place) -> dict[str, str]:
        model = {
            "model_id": "scripted",
            "model_name": GPT,
            "api_base": f"{place.base}/v1",
            "api_key_name": "scripted",
        }
        place.write("llm/extra-openai-models.yaml", json.dumps([model]))  # JSON is YAML
        place.write("llm/keys.json", {"scripted": KEY})
        return {"LLM_USER_PATH": str(place.home / "llm")}

    def command(prompt: str, continues: bool) -> list[Any]:  # noqa: FBT001
        begun = ("-c",) if continues else ("-m", "scripted", "-s", "You keep a ledger.")
        return [RIG / "llm/bin/llm", *begun, prompt]

    return Agent("llm", configure, command, has_tools=False)


def make_aider() -> Agent:
    """aider, its chat history restored in each process; it has no tools."""

    def configure(place: Place) -> dict[str, str]:
        return {
            "OPENAI_API_KEY": KEY,
            "OPENAI_API_BASE": f"{place.base}/v1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    quiet = ("--no-git", "--yes-always", "--no-pretty", "--no-fancy-input", "--no-check-update",
             "--analytics-disable", "--no-show-model-warnings", "--no-detect-urls")  # fmt: skip
    history = ("--restore-chat-history", "--max-chat-history-tokens", "10000000")
    program = (RIG / "aider/bin/aider", "--model", "openai/gpt-4o", *quiet, *history)
    return Agent(
        "aider", configure, lambda prompt, _: [*program, "--message", prompt], has_tools=False
    )


_NODE = shutil.which("node") or "node"
AGENTS = {
    "claude": make_claude(),
    "claude-stream": make_claude(is_talker=True),
    "claude-own": make_claude(own_compaction=100_000),
    "codex": make_codex(),
    "codex-own": make_codex(own_compaction=25_000),
    "codex-remote": make_codex(provider="OpenAI", own_compaction=25_000),
    "opencode-chat": make_opencode(f"scripted/{GPT}"),
    "opencode-anthropic": make_opencode(f"anthropic/{CLAUDE}"),
    "opencode-openai": make_opencode(f"openai/{GPT}"),
    "pi-chat": make_pi("openai-completions", "/v1", GPT),
    "pi-anthropic": make_pi("anthropic-messages", "", CLAUDE),
    "pi-openai": make_pi("openai-responses", "/v1", GPT),
    "gemini": make_gemini("auto"),
    "gemini-2": make_gemini("gemini-2.5-pro"),
    "gemini-resume": make_gemini(GEMINI, is_resumed=True),
    "vercel-chat": make_script("vercel", [_NODE, _HERE / "vercel_agent.mjs", "chat"]),
    "vercel-anthropic": make_script("vercel", [_NODE, _HERE / "vercel_agent.mjs", "anthropic"]),
    "vercel-openai": make_script("vercel", [_NODE, _HERE / "vercel_agent.mjs", "openai"]),
    "sdk": make_script("sdk", [sys.executable, _HERE / "sdk_agent.py"]),
    "llm": make_llm(),
    "aider": make_aider(),
    "langchain": make_framework("langchain", "langchain_agent.py"),
    "langchain-stream": make_framework("langchain", "langchain_agent.py", "stream"),
    "litellm": make_framework("litellm", "litellm_agent.py"),
    "litellm-stream": make_framework("litellm", "litellm_agent.py", "stream"),
    "pydantic-chat": make_framework("pydantic-ai", "pydantic_agent.py", "chat"),
    "pydantic-anthropic": make_framework("pydantic-ai", "pydantic_agent.py", "anthropic"),
    "pydantic-stream": make_framework("pydantic-ai", "pydantic_agent.py", "chat", "stream"),
    "pydantic-openai": make_framework(
        "pydantic-ai", "pydantic_agent.py", "responses", has_foldline=False
    ),
    "pydantic-openai-inside": make_framework("pydantic-ai", "pydantic_agent.py", "responses"),
    "pydantic-openai-inside-stream": make_framework(
        "pydantic-ai", "pydantic_agent.py", "responses", "stream"
    ),
    "openai-agents": make_framework("openai-agents", "openai_agents_agent.py"),
    "openai-agents-stream": make_framework("openai-agents", "openai_agents_agent.py", "stream"),
    "openai-agents-responses": make_framework(
        "openai-agents", "openai_agents_agent.py", "responses", has_foldline=False
    ),
    "openai-agents-responses-inside": make_framework(
        "openai-agents", "openai_agents_agent.py", "responses"
    ),
    "openai-agents-responses-inside-stream": make_framework(
        "openai-agents", "openai_agents_agent.py", "responses", "stream"
    ),
    "adk": make_framework("adk", "adk_agent.py", has_foldline=False),
    "adk-inside": make_framework("adk", "adk_agent.py"),
    "adk-inside-stream": make_framework("adk", "adk_agent.py", "stream"),
    "agent-framework": make_framework(
        "agent-framework", "agent_framework_agent.py", has_foldline=False
    ),
    "agent-framework-inside": make_framework("agent-framework", "agent_framework_agent.py"),
    "agent-framework-inside-stream": make_framework(
        "agent-framework", "agent_framework_agent.py", "stream"
    ),
}
