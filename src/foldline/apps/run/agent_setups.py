"""What each coding agent needs to speak to a gateway, without a change to the user's files.

An agent is redirected by variables and arguments of this one run. Its own settings and its login
are read only as far as needed: where its requests go today, and whether it has a key.

The server with which an agent looks back is started by the agent itself, from a file in the run's
folder or from arguments of the run. It answers for the conversation that asks, of those that the
run's gateway notes in its audit log. Agents that take no server for one run have the tool `recall`
of the gateway instead.
"""

import json
import sys
import tomllib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from foldline.errors import BadInput

Login: TypeAlias = Literal["key", "subscription"]
PROVIDERS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "google": "https://generativelanguage.googleapis.com",
}
"""Where requests go unless the user's own settings say otherwise, by vendor."""
_VARIABLES = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "google": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"),
}
"""The variables by which SDKs and agents take an address."""
_OWN_LOGIN = (
    "Claude Code uses its own login, which passes through unread and is stored nowhere; a "
    "subscription has no prices, so figures are tokens and quota"
)
_CLAUDE_SETTINGS = ("settings.json", "settings.local.json")
_CLAUDE_MANAGED = (
    Path("/etc/claude-code/managed-settings.json"),
    Path("/Library/Application Support/ClaudeCode/managed-settings.json"),
)
"""Settings of a machine's owner, which win over all others."""
_VENDOR_OF_SDK = {
    "@ai-sdk/anthropic": "anthropic",
    "@ai-sdk/openai": "openai",
    "@ai-sdk/openai-compatible": "openai",
    "@ai-sdk/google": "google",
}
_VENDOR_OF_API = {
    "anthropic-messages": "anthropic",
    "openai-completions": "openai",
    "openai-responses": "openai",
    "google-generative-ai": "google",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent would find: its environment, the user's home, the folder it works in."""

    environment: Mapping[str, str]
    home: Path
    work: Path
    arguments: tuple[str, ...] = ()
    """What the user gave the agent."""

    def find_folder(self, variable: str, *usual: str) -> Path:
        """Return the folder that a variable names, else the usual one below home."""
        named = self.environment.get(variable)
        return Path(named) if named else self.home.joinpath(*usual)


@dataclass(frozen=True, slots=True)
class Launch:
    """How an agent is started behind the gateway."""

    upstreams: Mapping[str, str] = field(default_factory=lambda: dict(PROVIDERS))
    """Where the gateway sends its requests, by vendor."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that are added to the user's."""
    arguments: tuple[str, ...] = ()
    """Arguments before the user's."""
    login: Login = "key"
    """A subscription has no prices: figures are tokens."""
    remarks: tuple[str, ...] = ()
    """What the user should know, in sentences."""
    given: tuple[str, ...] | None = None
    """The user's own arguments, if some name an address, which gives way to this run's."""


def find_setup(program: str) -> Callable[[Surroundings, str, Path], Launch]:
    """Return how a program is set up, by its name; an unknown one gets all variables."""
    return _SETUPS.get(Path(program).name.removesuffix(".exe"), set_up_any)


def set_up_any(found: Surroundings, base: str, folder: Path) -> Launch:
    """Set the variables that SDKs read."""
    del folder
    environment = {
        **dict.fromkeys(_VARIABLES["anthropic"], base),
        **dict.fromkeys(_VARIABLES["openai"], f"{base}/v1"),
        **dict.fromkeys(_VARIABLES["google"], base),
    }
    return Launch(_find_upstreams(found), environment)


def set_up_claude(found: Surroundings, base: str, folder: Path) -> Launch:
    """Claude Code; what its settings say about the address gives way to this run's."""
    for variable in (
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CODE_USE_FOUNDRY",
    ):
        if found.environment.get(variable):
            raise BadInput(
                f"{variable} is set: Claude Code then signs its requests itself, and no gateway "
                "can fold them; unset it, or start `claude` by itself"
            )
    folders = (found.find_folder("CLAUDE_CONFIG_DIR", ".claude"), found.work / ".claude")
    settings: dict[str, Any] = {}
    own_settings: dict[str, Any] = {}
    for file in (folder / name for folder in folders for name in _CLAUDE_SETTINGS):
        settings = _merge(settings, _read_json(file))
    given = _split_options(found.arguments, "--settings")
    for text in given.values:  # a file, or the settings themselves
        stated = text.lstrip().startswith("{")
        more = _parse_json(text) if stated else _read_json(found.work / Path(text).expanduser())
        settings = _merge(settings, more)
        own_settings = _merge(own_settings, more)
    for file in _CLAUDE_MANAGED:
        if _as_table(_read_json(file).get("env")).get("ANTHROPIC_BASE_URL"):
            raise BadInput(
                f"{file} names ANTHROPIC_BASE_URL, and no run can change that: calls would go past "
                "the gateway; start `claude` by itself, or have that line removed"
            )
    own = _as_table(settings.get("env"))
    upstreams = _find_upstreams(found)
    own_url = own.get("ANTHROPIC_BASE_URL")
    arguments: tuple[str, ...] = ()
    if isinstance(own_url, str):  # it would win over a variable of the environment
        upstreams["anthropic"] = own_url
        changed = json.dumps(_merge(own_settings, {"env": {"ANTHROPIC_BASE_URL": base}}))
        if given.values:  # in a file: others see command lines, and the user's may hold a key
            file = folder / "claude-settings.json"
            file.write_text(changed, encoding="utf-8")
            changed = str(file)
        arguments = ("--settings", changed)
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    has_key = any(found.environment.get(one) or own.get(one) for one in keys)
    has_key = has_key or bool(settings.get("apiKeyHelper"))
    # A login at the Console, where calls are paid for one by one, has left a key.
    state = found.find_folder("CLAUDE_CONFIG_DIR") / ".claude.json"
    has_key = has_key or bool(_read_json(state).get("primaryApiKey"))
    login: Login = "key" if has_key else "subscription"
    remarks = () if has_key else (_OWN_LOGIN,)
    rest = given.rest if arguments and given.values else None
    return Launch(upstreams, {"ANTHROPIC_BASE_URL": base}, arguments, login, remarks, rest)


def set_up_codex(found: Surroundings, base: str, folder: Path) -> Launch:
    """Codex, by `-c`: the address of the provider that its settings name."""
    del folder
    own = found.find_folder("CODEX_HOME", ".codex")
    given = _split_options(found.arguments, "-c", "--config")
    settings = _read_toml(own / "config.toml")
    profile = [*_split_options(found.arguments, "-p", "--profile").values, settings.get("profile")]
    settings = _merge(
        settings, _as_table(_as_table(settings.get("profiles")).get(profile[0] or ""))
    )
    for option in given.values:
        settings = _merge(settings, _parse_codex_option(option))
    name = settings.get("model_provider", "openai")
    upstreams = _find_upstreams(found)
    url = f"{base}/v1"
    provider = _as_table(_as_table(settings.get("model_providers")).get(name))
    if provider:
        if isinstance(provider.get("base_url"), str):
            upstreams["openai"] = provider["base_url"]
        changed = {"base_url": url, "supports_websockets": False}
        arguments = [
            f"model_providers.{name}.{key}={json.dumps(value)}" for key, value in changed.items()
        ]
    else:
        signed_in = _read_json(own / "auth.json")
        has_account = bool(signed_in.get("tokens"))  # it wins over CODEX_API_KEY
        is_hidden = settings.get("cli_auth_credentials_store", "file") != "file"
        has_key = bool(found.environment.get("CODEX_API_KEY")) or is_hidden
        if not signed_in.get("OPENAI_API_KEY") and (has_account or not has_key):
            raise BadInput(
                "Codex is signed in with ChatGPT, or not at all: that login is for ChatGPT's own "
                "server, and is not sent through a gateway; "
                "`printenv OPENAI_API_KEY | codex login --with-api-key` signs in with a key"
            )
        if isinstance(settings.get("openai_base_url"), str):
            upstreams["openai"] = settings["openai_base_url"]
        arguments = [f"openai_base_url={json.dumps(url)}"]
    ours = {one.partition("=")[0] for one in arguments}
    kept = [one for one in given.values if one.partition("=")[0].strip() not in ours]
    rest = None  # an address of the user's would win: their options come after ours
    if len(kept) < len(given.values):
        rest = (*(word for one in kept for word in ("-c", one)), *given.rest)
    words = tuple(word for one in arguments for word in ("-c", one))
    return Launch(upstreams, {}, words, given=rest)


def set_up_opencode(found: Surroundings, base: str, folder: Path) -> Launch:
    """opencode, by settings in a variable, which it reads after all of its files."""
    del folder
    config = found.find_folder("XDG_CONFIG_HOME", ".config") / "opencode"
    named = found.environment.get("OPENCODE_CONFIG")
    inline = _parse_json(found.environment.get("OPENCODE_CONFIG_CONTENT", ""))
    files = [config / "opencode.json", config / "opencode.jsonc", *([Path(named)] if named else [])]
    files += [found.work / "opencode.json", found.work / "opencode.jsonc"]
    providers: dict[str, dict[str, Any]] = {name: {} for name in PROVIDERS}
    for settings in (*map(_read_json, files), inline):
        for name, given in _as_table(settings.get("provider")).items():
            providers[name] = {**providers.get(name, {}), **_as_table(given)}
    logins = found.find_folder("XDG_DATA_HOME", ".local", "share") / "opencode" / "auth.json"
    direct = _find_subscriptions(logins)
    upstreams, redirected = _find_upstreams(found), dict[str, Any]()
    for name, given in providers.items():
        if name in direct:
            continue
        vendor = name if name in PROVIDERS else _VENDOR_OF_SDK.get(str(given.get("npm")))
        url = _as_table(given.get("options")).get("baseURL")
        if vendor is None or (name not in PROVIDERS and not isinstance(url, str)):
            continue
        if isinstance(url, str):
            upstreams[vendor] = url
        path = "/v1beta" if vendor == "google" else "/v1"
        redirected[name] = {"options": {"baseURL": f"{base}{path}"}}
    content = json.dumps(_merge(inline, {"provider": redirected}))
    variables = {"OPENCODE_CONFIG_CONTENT": content}
    return Launch(upstreams, variables, remarks=_explain_direct("opencode", direct))


def set_up_pi(found: Surroundings, base: str, folder: Path) -> Launch:
    """Pi, by an extension for this run that gives its providers another address."""
    agent = found.find_folder("PI_CODING_AGENT_DIR", ".pi", "agent")
    upstreams, direct = _find_upstreams(found), _find_subscriptions(agent / "auth.json")
    addresses = {"anthropic": base, "openai": f"{base}/v1", "google": f"{base}/v1beta"}
    for name, said in _as_table(_read_json(agent / "models.json").get("providers")).items():
        given = _as_table(said)
        vendor, url = _VENDOR_OF_API.get(str(given.get("api"))), given.get("baseUrl")
        if vendor is None or not isinstance(url, str):
            continue
        upstreams[vendor] = url
        addresses[name] = addresses[vendor]
    calls = (
        f"  pi.registerProvider({json.dumps(name)}, {{ baseUrl: {json.dumps(url)} }});\n"
        for name, url in addresses.items()
        if name not in direct
    )
    extension = folder / "foldline-gateway.js"
    extension.write_text(f"export default function (pi) {{\n{''.join(calls)}}}\n", encoding="utf-8")
    arguments = ("--extension", str(extension))
    return Launch(upstreams, {}, arguments, remarks=_explain_direct("pi", direct))


def set_up_gemini(found: Surroundings, base: str, folder: Path) -> Launch:
    """gemini-cli; Google's own login goes to another server."""
    del folder
    own = {"GOOGLE_GEMINI_BASE_URL": ""}
    for place in (found.home, found.work):
        for file in (place / ".env", place / ".gemini" / ".env"):
            own.update(_read_variables(file, own))
    own.update((name, found.environment[name]) for name in own if found.environment.get(name))
    security = _as_table(_read_json(found.home / ".gemini" / "settings.json").get("security"))
    chosen = _as_table(security.get("auth")).get("selectedType")
    if chosen != "gemini-api-key":
        raise BadInput(
            "gemini-cli does not use a key: the login with a Google account is for Google's own "
            "server, and is not sent through a gateway; start `gemini`, enter /auth and choose "
            "the API key"
        )
    upstreams = _find_upstreams(found)
    upstreams["google"] = own["GOOGLE_GEMINI_BASE_URL"] or upstreams["google"]
    return Launch(upstreams, {"GOOGLE_GEMINI_BASE_URL": base})


_SETUPS = {
    "claude": set_up_claude,
    "codex": set_up_codex,
    "opencode": set_up_opencode,
    "pi": set_up_pi,
    "gemini": set_up_gemini,
    "qwen": set_up_any,
    "aider": set_up_any,
}
AGENTS = (*_SETUPS,)
"""The agents that are known by name."""


class _SplitOptions(NamedTuple):
    """The values of an option, and the arguments without it."""

    values: tuple[str, ...]
    rest: tuple[str, ...]


def _split_options(arguments: Sequence[str], *names: str) -> _SplitOptions:
    """Split an option with a value from arguments: `--name VALUE` and `--name=VALUE`.

    After `--` nothing is an option.
    """
    values, rest = list[str](), list[str]()
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif word in names and (following := next(words, None)) is not None:
            values.append(following)
        elif name in names and value:
            values.append(value)
        else:
            rest.append(word)
    return _SplitOptions(tuple(values), tuple(rest))


def _parse_codex_option(option: str) -> dict[str, Any]:
    """Parse `KEY=VALUE` of Codex: a value that is no TOML is text."""
    key, _, value = option.partition("=")
    for text in (value, json.dumps(value.strip())):
        try:
            return tomllib.loads(f"{key} = {text}")
        except ValueError:
            continue
    return {}


def _find_subscriptions(logins: Path) -> tuple[str, ...]:
    """Return the providers at which an agent is signed in with an account, not with a key."""
    known = _read_json(logins).items()
    return tuple(name for name, login in known if _as_table(login).get("type") == "oauth")


def _explain_direct(agent: str, providers: tuple[str, ...]) -> tuple[str, ...]:
    """Say which providers' requests go where they always go."""
    if not providers:
        return ()
    names = ", ".join(providers)
    sentence = (
        f"{agent} is signed in at {names} with an account: such a login is for its vendor's own "
        "server, so these requests do not pass through the gateway; a key would"
    )
    return (sentence,)


def _find_upstreams(found: Surroundings) -> dict[str, str]:
    """Return where requests go today: the user's variables, else the providers themselves."""
    given = {
        vendor: next(filter(None, map(found.environment.get, names)), None)
        for vendor, names in _VARIABLES.items()
    }
    return {vendor: given[vendor] or usual for vendor, usual in PROVIDERS.items()}


def _read_variables(path: Path, names: Container[str]) -> dict[str, str]:
    """Read some variables of a file with a line `NAME=VALUE` for each."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    pairs = (line.removeprefix("export ").partition("=") for line in map(str.strip, lines))
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs if name in names}


def _read_toml(path: Path) -> dict[str, Any]:
    """Read an agent's file; one that is not there or not readable says nothing."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return _parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _parse_json(text: str) -> dict[str, Any]:
    """Parse an object of JSON; comments at the beginning of lines are left out."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("//"))
    try:
        return _as_table(json.loads("\n".join(lines) or "{}"))
    except ValueError:
        return {}


def _as_table(found: Any) -> dict[str, Any]:
    """Return a table as it is; anything else is an empty one."""
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge tables within tables; the second one wins."""
    merged = dict(under)
    for key, value in over.items():
        inner = _as_table(value)
        merged[key] = _merge(_as_table(merged.get(key)), inner) if inner else value
    return merged


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
