"""What a tool's answer tells: how it ended, which tests failed, which lines complain.

Knows the words of shells, test runners and editors. Refuses to know which call was answered.

Every pattern is linear, and only both ends of a long answer are read: what decides stands there.
"""

import re
from dataclasses import dataclass
from typing import Any, cast

import msgspec

_LOOK = 65_536  # characters of each end that are read
_WIDTH = 200  # of one line
# A status stands on a line of its own, or in an envelope: prose may say "exit 5" too.
_EXIT = re.compile(
    r"^[\[(<]?(?:(?:the )?(?:process|command) )?(?:exit(?:ed)?|finished|return(?:ed)?)(?: with)?"
    r"[ _]?(?:code|status|value)?[\])>]?[ :=]{0,3}(-?\d{1,4})\b[^\n]{0,20}$"
    r"|PROCESS-DONE:(-?\d{1,4}):",
    re.IGNORECASE | re.MULTILINE,
)
_ENVELOPE = 200_000  # characters of a JSON answer that is looked into
_SIGNS = ("xit", "XIT", "eturn", "inish", "PROCESS-DONE")  # looked for first: most have none
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
_WHERE = re.compile(
    r"^[(\[]Current (?:working )?directory: (?P<path>/[^\n)\]]*)[)\]]", re.MULTILINE
)
_HASH = re.compile(r"^(?P<hash>[0-9a-f]{32,64}) [ *](?P<path>\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one answer tells."""

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
    """Files, each with the name of a hash and the hash."""
    missed: bool
    """Whether a file or a command was not there."""
    selected: bool
    """Whether a run of tests left some out."""


def outcome(text: str, *, ok: bool, shell: bool) -> Outcome:
    """Read an answer; `ok` is what the tool itself said of it, `shell` whether it ran a command."""
    text, status, refused = _unwrapped(text)
    text = text if len(text) <= 2 * _LOOK else f"{text[:_LOOK]}\n{text[-_LOOK:]}"
    text = text.replace("\r\n", "\n")
    status = _status(text) if status is None and shell else status
    missed = bool(_SHELL_REFUSED.search(text[:300]))
    refused |= bool((_EDITOR_REFUSED if shell else _REFUSED).match(text)) or missed
    failed = _tests(_FAILED_TEST, text)
    stated = _STATED.search(text) if "[File: " in text else None
    where = _WHERE.search(text) if "directory: " in text else None
    good = ok and status in (None, 0) and not (refused and status is None)
    return Outcome(
        ok=good,
        exit=status,
        failed=failed,
        passed=_tests(_PASSED_TEST, text),
        all_passed=good and not failed and bool(_ALL_PASSED.search(text)),
        faults=() if good and not failed else _faults(text),
        stated=stated["path"] if stated else "",
        where=where["path"] if where else "",
        hashes={found["path"]: _named(found["hash"]) for found in _HASH.finditer(text)},
        missed=missed,
        selected="deselected" in text or "filtered out" in text,
    )


def _unwrapped(text: str) -> tuple[str, int | None, bool]:
    """The words in a JSON envelope, its exit status, and whether it tells of an error."""
    if not text.lstrip().startswith("{") or len(text) > _ENVELOPE:
        return text, None, False
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text, None, False
    if not isinstance(found, dict):
        return text, None, False
    body = cast("dict[str, Any]", found)
    inner = body.get("metadata")
    both = {**body, **(cast("dict[str, Any]", inner) if isinstance(inner, dict) else {})}
    status = next((both[key] for key in _CODES if isinstance(both.get(key), int)), None)
    said = [both[key] for key in _SAID if isinstance(both.get(key), str) and both[key]]
    refused = bool(body.get("error")) or body.get("success") is False or body.get("ok") is False
    return "\n".join(said) if said else text, status, refused


def _named(digest: str) -> str:
    names = {32: "md5", 40: "sha1", 56: "sha224", 64: "sha256"}
    return f"{names.get(len(digest), 'hash')}:{digest[:12]}"


def _status(text: str) -> int | None:
    """The exit status, where one is stated on a line near an end: the head says it for sure."""
    for part in (text[:300], text[-400:]):
        if not any(sign in part for sign in _SIGNS):
            continue
        found = list(_EXIT.finditer(part))
        if found:
            return int(found[-1][1] or found[-1][2])
    return None


def _tests(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    if not any(sign in text for sign in _TESTS):
        return ()
    return tuple(dict.fromkeys(_id(found) for found in pattern.finditer(text)))


def _id(found: re.Match[str]) -> str:
    return next(name for name in found.groupdict().values() if name is not None).strip()


def _faults(text: str) -> tuple[str, ...]:
    """The newest distinct lines that complain, at most three, as they came."""
    lines = dict.fromkeys(line.strip()[:_WIDTH] for line in text.split("\n"))
    return tuple([line for line in lines if _FAULT.search(line)][-3:])
