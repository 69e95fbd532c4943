"""What a call is about to do: files it touches, the command it runs, the list it keeps.

Knows the tools of common agents by their names and arguments: OpenAI and Anthropic functions, MCP
servers, editors, shells. Refuses to know whether it worked.
"""

import hashlib
import re
import shlex
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import msgspec

from foldline.core.ledger import shell
from foldline.core.ledger.shell import State, Touch
from foldline.core.parts import Call

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PATHS = (  # argument names are looked up without regard to capitals and underscores
    *("path", "filepath", "filename", "file", "notebookpath", "targetfile", "targetpath"),
    *("absolutepath", "relativepath", "abspath", "uri"),
)
_MANY = ("paths", "files", "filepaths", "edits", "changes")
_FROM = ("source", "src", "from", "oldpath", "sourcepath", "frompath")
_TO = ("destination", "dest", "dst", "to", "newpath", "destinationpath", "topath", "target")
_CONTENT = ("content", "contents", "filetext", "text")
_COMMANDS = ("command", "cmd", "script", "commands", "input", "code")
_SHELLS = {"bash", "shell", "sh", "zsh", "exec", "execute", "terminal", "cmd", "powershell", "run"}
_EDITORS: dict[str, State] = {
    "view": "read",
    "delete": "removed",
    **dict.fromkeys(("create", "str_replace", "insert", "undo_edit", "write"), "written"),
}
_LOOKS = {
    *("list", "ls", "dir", "glob", "grep", "search", "find", "tree", "stat", "exists", "info"),
    *("metadata", "directory", "folder", "directories"),
}
_WHERE = ("cwd", "workdir", "workingdirectory", "dir", "directory")
_REMOVES = {"delete", "remove", "rm", "unlink"}
_MOVES = {"move", "rename", "mv"}
_WRITES = {
    *("write", "create", "edit", "update", "replace", "insert", "append", "save", "modify"),
    *("patch", "apply", "put", "multiedit"),
}
_WHOLE = {"write", "create", "save", "put"}
_READS = {"read", "view", "cat", "open", "get", "load", "show"}
_LISTS = ("todo", "plan", "task")
_TASKS = ("content", "step", "title", "description", "text", "task")
_STATUS = {"completed": "x", "done": "x", "in_progress": "~", "cancelled": "-"}
_DIFFED = re.compile(r"^--- (?:a/)?([^\t\n]+)[^\n]*\n\+\+\+ (?:b/)?([^\t\n]+)", re.MULTILINE)
_URL = re.compile(r"https?://[^\s\"'<>()\[\]{}\\]{3,300}")


@dataclass(frozen=True, slots=True)
class Act:
    """What a call would do if it works."""

    touches: tuple[Touch, ...] = ()
    command: str = ""
    todos: str | None = None
    """A whole list of tasks, which may be empty; None where it is none."""
    before: tuple[Touch, ...] = ()
    """Of a command of several steps: what was touched before the last one."""
    hashes: tuple[tuple[str, str], ...] = ()
    """Files written whole, each with a hash of what was written."""


def act(call: Call) -> Act:
    """Read a call; unknown tools do nothing that is known."""
    name, given = call.name.rsplit("__", 1)[-1].rsplit(".", 1)[-1], _arguments(call)
    words = set(_CAMEL.sub("_", name).lower().replace("-", "_").split("_"))
    todos = _todos(name.lower(), given)
    if todos is not None:
        return Act(todos=todos)
    verb = given.get("command")
    if isinstance(verb, str) and verb in _EDITORS and _first(given, _PATHS):
        whole = _hashes(given) if verb in ("create", "write") else ()
        return Act((Touch(_EDITORS[verb], _first(given, _PATHS)),), hashes=whole)
    if patch := _patch(given):
        return Act(patch)
    command = _command(given) if words & _SHELLS else ""
    if command:
        steps = [step.touches for step in shell.commands(command, cwd=_first(given, _WHERE))]
        before = tuple(chain.from_iterable(steps[:-1]))
        return Act((*before, *chain.from_iterable(steps[-1:])), command, before=before)
    return Act(_by_name(words, given), hashes=_hashes(given) if words & _WHOLE else ())


def links(text: str) -> list[str]:
    """The addresses in a text, each once."""
    return list(dict.fromkeys(url.rstrip(".,;:!?") for url in _URL.findall(text)))


def _arguments(call: Call) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        given = None
    if isinstance(given, dict):
        found = cast("dict[str, Any]", given)
        return {**{key.lower().replace("_", ""): value for key, value in found.items()}, **found}
    # A tool that takes one text: what came is that text.
    return {"input": given if isinstance(given, str) else call.arguments}


def _by_name(words: set[str], given: dict[str, Any]) -> tuple[Touch, ...]:
    source, target = _first(given, _FROM), _first(given, _TO)
    if words & _MOVES and source and target:
        return (Touch("moved", source, target),)
    if "copy" in words and source and target:
        return (Touch("read", source), Touch("written", target))
    paths = [path for path in _all_paths(given) if not any(sign in path for sign in "*?[{")]
    if words & _LOOKS and not words & {"replace", "edit", "write"}:
        return ()
    if words & _REMOVES:
        return tuple(Touch("removed", path) for path in paths)
    if words & _WRITES:
        return tuple(Touch("written", path) for path in paths)
    if words & _READS:
        return tuple(Touch("read", path) for path in paths)
    return ()


def _all_paths(given: dict[str, Any]) -> list[str]:
    found = [path] if (path := _first(given, _PATHS)) else []
    for key in _MANY:
        many = given.get(key)
        for one in cast("list[Any]", many) if isinstance(many, list) else []:
            if isinstance(one, str):
                found.append(one)
            elif isinstance(one, dict):
                found.append(_first(cast("dict[str, Any]", one), _PATHS))
    return list(dict.fromkeys(path.removeprefix("file://") for path in found if path))


def _first(given: dict[str, Any], keys: tuple[str, ...]) -> str:
    """The first of some arguments that is a short text of one line."""
    for key in keys:
        value = given.get(key)
        if isinstance(value, str) and value.strip() and "\n" not in value and len(value) < 1_000:  # noqa: PLR2004
            return value.strip()
    return ""


def _command(given: dict[str, Any]) -> str:
    for key in _COMMANDS:
        value = given.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            words = [str(word) for word in cast("list[Any]", value)]
            # ["bash", "-lc", "the command"]: what is run is the last word.
            wrapped = len(words) > 2 and words[1].startswith("-") and words[1].endswith("c")  # noqa: PLR2004
            return words[-1] if wrapped else shlex.join(words)
    return ""


def _patch(given: dict[str, Any]) -> tuple[Touch, ...]:
    """The files of a patch, in the form of Codex or as a unified diff."""
    for key in ("patch", "input", "diff", "patchtext"):
        text = given.get(key)
        if not isinstance(text, str):
            continue
        if "*** Begin Patch" in text:
            return tuple(shell.patched(text))
        if found := _DIFFED.findall(text):
            return tuple(_diffed(old.strip(), new.strip()) for old, new in found)
    return ()


def _diffed(old: str, new: str) -> Touch:
    return Touch("removed", old) if new == "/dev/null" else Touch("written", new)


def _todos(name: str, given: dict[str, Any]) -> str | None:
    """A whole list of tasks, one line each with its state; None where this is none."""
    keys = (key for key in ("todos", "plan", "tasks") if isinstance(given.get(key), list))
    key = next(keys, None)
    if key is None or not any(word in name for word in _LISTS):
        return None
    lines: list[str] = []
    for one in cast("list[Any]", given[key]):
        task = cast("dict[str, Any]", one) if isinstance(one, dict) else {"content": str(one)}
        texts = (task.get(name) for name in _TASKS)
        text = next((" ".join(text.split()) for text in texts if isinstance(text, str)), "")
        mark = _STATUS.get(str(task.get("status", "")), " ")
        lines += [f"[{mark}] {text[:160]}"] if text else []
    return "\n".join(lines[:40])


def _hashes(given: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    path = _first(given, _PATHS)
    content = next((given[key] for key in _CONTENT if isinstance(given.get(key), str)), None)
    if not path or content is None:
        return ()
    return (
        (path, "sha256:" + hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:12]),
    )
