"""Read one call and its result: what the call would do, and what came of it.

`classify_call` knows the tools of common agents by their names and arguments: OpenAI and Anthropic
functions, MCP servers, editors, shells. `parse_outcome` knows the output of shells, test runners
and editors. Every pattern is linear, and of a long result only both ends are read: the outcome is
stated there.
"""

import hashlib
import re
import shlex
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import msgspec

from foldline.core.ledger import shell_commands
from foldline.core.ledger.shell_commands import State, Touch
from foldline.core.parts import Call

_LOOK = 65_536  # characters read of each end
_WIDTH = 200  # characters of one line
# A status is on a line of its own, or in an envelope: prose may say "exit 5" too.
_EXIT = re.compile(
    r"^[\[(<]?(?:(?:the )?(?:process|command) )?(?:exit(?:ed)?|finished|return(?:ed)?)(?: with)?"
    r"[ _]?(?:code|status|value)?[\])>]?[ :=]{0,3}(-?\d{1,4})\b[^\n]{0,20}$"
    r"|PROCESS-DONE:(-?\d{1,4}):",
    re.IGNORECASE | re.MULTILINE,
)
_ENVELOPE = 200_000  # characters of the largest JSON envelope that is opened
_SIGNS = ("xit", "XIT", "eturn", "inish", "PROCESS-DONE")  # searched first: most texts have none
_CODES = ("exit_code", "exitCode", "returncode", "return_code", "status_code", "code")
_SAID = ("output", "stdout", "stderr", "content", "result", "text", "message", "error")
_TESTS = ("FAIL", "ERROR", "PASS", "... ok", "✕", "✗", "✓", "√")
_REFUSED = re.compile(
    r"\s*(?:<tool_use_error>|(?:error|failed|failure)\b ?(?:[:!(]|executing|reading|writing|calling"
    r"|running|while|occurred|to )|cannot |can't |could not |no such file|file not found|not found"
    r"|permission denied|enoent|no match|no replacement|your proposed edit|traceback|usage: "
    r"|unknown command|string to replace not found|old_string)",
    re.IGNORECASE,
)
_EDITOR_REFUSED = re.compile(r"\s*(?:your proposed edit|no replacement|error: )", re.IGNORECASE)
_SHELL_REFUSED = re.compile(
    r"(?:No such file or directory|command not found|Permission denied|not recognized as an)"
)
_FAILED_TEST = re.compile(
    r"^(?:FAILED|ERROR) (?P<pytest>[\w./\\-]+\.py(?:::[^\s]+)?)"
    r"|^(?P<verbose>[\w./\\-]+\.py::[^\s]+) (?:FAILED|ERROR)\b"
    r"|^(?:FAIL|ERROR): (?P<unittest>\w+ \([\w.]+\))"
    r"|^[ \t]*--- FAIL: (?P<go>[\w/]+)"
    r"|^test (?P<cargo>[\w:]+) \.\.\. FAILED"
    r"|^[ \t]*(?:✕|✗) (?P<jest>[^\n]{1,120}?)(?: \(\d+ ?m?s\))?$",
    re.MULTILINE,
)
_PASSED_TEST = re.compile(
    r"^(?P<verbose>[\w./\\-]+\.py::[^\s]+) PASSED\b"
    r"|^(?P<unittest>\w+ \([\w.]+\)) \.\.\. ok$"
    r"|^[ \t]*--- PASS: (?P<go>[\w/]+)"
    r"|^test (?P<cargo>[\w:]+) \.\.\. ok"
    r"|^[ \t]*(?:✓|√) (?P<jest>[^\n]{1,120}?)(?: \(\d+ ?m?s\))?$",
    re.MULTILINE,
)
_ALL_PASSED = re.compile(
    r"^=* ?\d+ passed\b(?![^\n]*(?:failed|error))|^OK(?: \(|$)|^ok\s+\S+\s|^test result: ok\."
    r"|^Tests: +(?!.*failed)[^\n]*\d+ passed",
    re.MULTILINE,
)
_FAULT = re.compile(
    r"\b[Ee]rror\b|[a-z]Error\b|Exception\b|\bFAILED\b|\bFATAL\b|\bERROR\b|\bpanic\b|\bdenied\b"
    r"|\bnot found\b|\bNo such file\b|\bundefined\b|\bfatal:"
)
_STATED = re.compile(r"^\[File: (?P<path>[^\n(]+?) \(\d+ lines total\)\]", re.MULTILINE)
_FOLDER_LINE = re.compile(
    r"^[(\[]Current (?:working )?directory: (?P<path>/[^\n)\]]*)[)\]]", re.MULTILINE
)
_HASH = re.compile(r"^(?P<hash>[0-9a-f]{32,64}) [ *](?P<path>\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one result tells."""

    ok: bool
    exit: int | None
    failed: tuple[str, ...]
    passed: tuple[str, ...]
    all_passed: bool
    faults: tuple[str, ...]
    stated: str
    """The file that an editor says it shows."""
    where: str
    """The folder that a shell says it is in."""
    hashes: dict[str, str]
    """Path → `algorithm:digest`."""
    missed: bool
    """Whether a file or a command was not found."""
    selected: bool
    """Whether a test run left some tests out."""


def parse_outcome(text: str, *, ok: bool, shell: bool) -> Outcome:
    """Parse a result; `ok` is the tool's own verdict, `shell` whether it ran a command."""
    text, status, refused = _unwrap_envelope(text)
    text = text if len(text) <= 2 * _LOOK else f"{text[:_LOOK]}\n{text[-_LOOK:]}"
    text = text.replace("\r\n", "\n")
    status = _find_exit_status(text) if status is None and shell else status
    missed = bool(_SHELL_REFUSED.search(text[:300]))
    refused |= bool((_EDITOR_REFUSED if shell else _REFUSED).match(text)) or missed
    failed = _list_tests(_FAILED_TEST, text)
    stated = _STATED.search(text) if "[File: " in text else None
    where = _FOLDER_LINE.search(text) if "directory: " in text else None
    good = ok and status in (None, 0) and not (refused and status is None)
    return Outcome(
        ok=good,
        exit=status,
        failed=failed,
        passed=_list_tests(_PASSED_TEST, text),
        all_passed=good and not failed and bool(_ALL_PASSED.search(text)),
        faults=() if good and not failed else _select_fault_lines(text),
        stated=stated["path"] if stated else "",
        where=where["path"] if where else "",
        hashes={found["path"]: _format_digest(found["hash"]) for found in _HASH.finditer(text)},
        missed=missed,
        selected="deselected" in text or "filtered out" in text,
    )


def _unwrap_envelope(text: str) -> tuple[str, int | None, bool]:
    """Return the words in a JSON envelope, its exit status, and whether it states an error."""
    if not text.lstrip().startswith("{") or len(text) > _ENVELOPE:
        return text, None, False
    try:
        body = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text, None, False
    inner = body.get("metadata")
    both = {**body, **(cast("dict[str, Any]", inner) if isinstance(inner, dict) else {})}
    status = next((both[key] for key in _CODES if isinstance(both.get(key), int)), None)
    said = [both[key] for key in _SAID if isinstance(both.get(key), str) and both[key]]
    refused = bool(body.get("error")) or body.get("success") is False or body.get("ok") is False
    return "\n".join(said) if said else text, status, refused


def _format_digest(digest: str) -> str:
    names = {32: "md5", 40: "sha1", 56: "sha224", 64: "sha256"}
    return f"{names.get(len(digest), 'hash')}:{digest[:12]}"


def _find_exit_status(text: str) -> int | None:
    """Find the exit status that a line near either end states; the head is the surer place."""
    for part in (text[:300], text[-400:]):
        if any(sign in part for sign in _SIGNS) and (matches := _EXIT.findall(part)):
            return int(matches[-1][0] or matches[-1][1])
    return None


def _list_tests(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    if not any(sign in text for sign in _TESTS):
        return ()
    # One alternative matches, and its only group is the test's name.
    return tuple(
        dict.fromkeys(match[match.lastgroup or 0].strip() for match in pattern.finditer(text))
    )


def _select_fault_lines(text: str) -> tuple[str, ...]:
    """Select the last three distinct lines that complain, in their order."""
    lines = dict.fromkeys(line.strip()[:_WIDTH] for line in text.split("\n"))
    return tuple([line for line in lines if _FAULT.search(line)][-3:])


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PATHS = (  # argument names, in small letters without underscores
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
_FOLDER_KEYS = ("cwd", "workdir", "workingdirectory", "dir", "directory")
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
    """What a call does if it succeeds."""

    touches: tuple[Touch, ...] = ()
    command: str = ""
    todos: str | None = None
    """A whole list of tasks, which may be empty; None if the call writes none."""
    before: tuple[Touch, ...] = ()
    """Of a command of several steps: what is touched before the last one."""
    hashes: tuple[tuple[str, str], ...] = ()
    """Files written whole, each with a hash of the content."""


def classify_call(call: Call) -> Act:
    """Classify a call by its tool's name and arguments; unknown tools do nothing known."""
    name, arguments = call.name.rsplit("__", 1)[-1].rsplit(".", 1)[-1], _parse_arguments(call)
    words = set(_CAMEL.sub("_", name).lower().replace("-", "_").split("_"))
    todos = _render_todos(name.lower(), arguments)
    if todos is not None:
        return Act(todos=todos)
    verb = arguments.get("command")
    if isinstance(verb, str) and verb in _EDITORS and _find_argument(arguments, _PATHS):
        whole = _hash_written_file(arguments) if verb in ("create", "write") else ()
        return Act((Touch(_EDITORS[verb], _find_argument(arguments, _PATHS)),), hashes=whole)
    if patch := _parse_patch(arguments):
        return Act(patch)
    command = _find_command(arguments) if words & _SHELLS else ""
    if command:
        cwd = _find_argument(arguments, _FOLDER_KEYS)
        steps = [step.touches for step in shell_commands.parse_commands(command, cwd=cwd)]
        before = tuple(chain.from_iterable(steps[:-1]))
        return Act((*before, *chain.from_iterable(steps[-1:])), command, before=before)
    return Act(
        _by_name(words, arguments), hashes=_hash_written_file(arguments) if words & _WHOLE else ()
    )


def only_shows_files(call: Call) -> bool:
    """True for a shell command that only shows files, such as `cat a.py | head -50`."""
    name = call.name.rsplit("__", 1)[-1].rsplit(".", 1)[-1]
    words = set(_CAMEL.sub("_", name).lower().replace("-", "_").split("_"))
    command = _find_command(_parse_arguments(call)) if words & _SHELLS else ""
    return bool(command) and shell_commands.only_shows_files(command)


def list_links(text: str) -> list[str]:
    """List the URLs in a text, each once."""
    return list(dict.fromkeys(url.rstrip(".,;:!?") for url in _URL.findall(text)))


def _parse_arguments(call: Call) -> dict[str, Any]:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        named = cast("dict[str, Any]", arguments)
        return {**{key.lower().replace("_", ""): value for key, value in named.items()}, **named}
    # A tool that takes one text, which need not be JSON.
    return {"input": arguments if isinstance(arguments, str) else call.arguments}


def _by_name(words: set[str], arguments: dict[str, Any]) -> tuple[Touch, ...]:
    source, target = _find_argument(arguments, _FROM), _find_argument(arguments, _TO)
    if words & _MOVES and source and target:
        return (Touch("moved", source, target),)
    if "copy" in words and source and target:
        return (Touch("read", source), Touch("written", target))
    paths = [path for path in _all_paths(arguments) if not any(sign in path for sign in "*?[{")]
    if words & _LOOKS and not words & {"replace", "edit", "write"}:
        return ()
    if words & _REMOVES:
        return tuple(Touch("removed", path) for path in paths)
    if words & _WRITES:
        return tuple(Touch("written", path) for path in paths)
    if words & _READS:
        return tuple(Touch("read", path) for path in paths)
    return ()


def _all_paths(arguments: dict[str, Any]) -> list[str]:
    paths = [_find_argument(arguments, _PATHS)]
    for key in _MANY:
        many = arguments.get(key)
        for one in cast("list[Any]", many) if isinstance(many, list) else []:
            if isinstance(one, str):
                paths.append(one)
            elif isinstance(one, dict):
                paths.append(_find_argument(cast("dict[str, Any]", one), _PATHS))
    return list(dict.fromkeys(path.removeprefix("file://") for path in paths if path))


def _find_argument(arguments: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Find the first of these arguments that is a short text of one line."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value.strip() and "\n" not in value and len(value) < 1_000:  # noqa: PLR2004
            return value.strip()
    return ""


def _find_command(arguments: dict[str, Any]) -> str:
    for key in _COMMANDS:
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            words = [str(word) for word in cast("list[Any]", value)]
            # ["bash", "-lc", "the command"] runs its last word.
            wrapped = len(words) > 2 and words[1].startswith("-") and words[1].endswith("c")  # noqa: PLR2004
            return words[-1] if wrapped else shlex.join(words)
    return ""


def _parse_patch(arguments: dict[str, Any]) -> tuple[Touch, ...]:
    """Parse the files of a patch, in Codex's format or as a unified diff."""
    for key in ("patch", "input", "diff", "patchtext"):
        text = arguments.get(key)
        if not isinstance(text, str):
            continue
        if "*** Begin Patch" in text:
            return tuple(shell_commands.parse_codex_patch(text))
        if pairs := [(old.strip(), new.strip()) for old, new in _DIFFED.findall(text)]:
            return tuple(
                Touch("removed", old) if new == "/dev/null" else Touch("written", new)
                for old, new in pairs
            )
    return ()


def _render_todos(name: str, arguments: dict[str, Any]) -> str | None:
    """Render a list of tasks, one line each with its state; None if the call writes none."""
    keys = (key for key in ("todos", "plan", "tasks") if isinstance(arguments.get(key), list))
    key = next(keys, None)
    if key is None or not any(word in name for word in _LISTS):
        return None
    lines: list[str] = []
    for one in cast("list[Any]", arguments[key]):
        task = cast("dict[str, Any]", one) if isinstance(one, dict) else {"content": str(one)}
        texts = (task.get(name) for name in _TASKS)
        text = next((" ".join(text.split()) for text in texts if isinstance(text, str)), "")
        mark = _STATUS.get(str(task.get("status", "")), " ")
        lines += [f"[{mark}] {text[:160]}"] if text else []
    return "\n".join(lines[:40])


def _hash_written_file(arguments: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    path = _find_argument(arguments, _PATHS)
    content = next(
        (arguments[key] for key in _CONTENT if isinstance(arguments.get(key), str)), None
    )
    if not path or content is None:
        return ()
    digest = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()
    return ((path, f"sha256:{digest[:12]}"),)
