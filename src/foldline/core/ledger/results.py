"""What a tool's answer tells: how it ended, which tests failed, which lines complain.

Knows the words of shells, test runners and editors. Refuses to know which call was answered.

Every pattern is linear, and only both ends of a long answer are read: what decides stands there.
"""

import re
from dataclasses import dataclass

_LOOK = 65_536  # characters of each end that are read
_WIDTH = 200  # of one line
_EXIT = re.compile(
    r"\b(?:exit(?:ed)?|return)[ _-]?(?:with )?(?:code|status|value)?[\"'>]{0,2} ?[:=]? ?"
    r"(-?\d{1,4})\b"
    r"|PROCESS-DONE:(-?\d{1,4}):",
    re.IGNORECASE,
)
_SIGNS = ("xit", "XIT", "eturn", "PROCESS-DONE")  # looked for first: most answers have none
_TESTS = ("FAIL", "ERROR", "PASS", "... ok", "✕", "✗", "✓", "√")
_REFUSED = re.compile(
    r"\s*(?:<tool_use_error>|\{\"error\"|\{\"success\": ?false|error\b|failed\b|cannot |can't "
    r"|could not |no such file|file not found|not found|permission denied|enoent|invalid |no match"
    r"|no replacement|your proposed edit|traceback|usage: |unknown command|old_string|string to "
    r"replace not found)",
    re.IGNORECASE,
)
_SHELL_REFUSED = re.compile(
    r"(?:No such file or directory|command not found|Permission denied|not recognized as an)"
)
_FAILED_TEST = re.compile(
    r"^(?:FAILED|ERROR) (?P<pytest>[\w./\\-]+\.py(?:::[^\s]+)?)"
    r"|^(?P<verbose>[\w./\\-]+\.py::[^\s]+) (?:FAILED|ERROR)\b"
    r"|^(?:FAIL|ERROR): (?P<unittest>\w+ \([\w.]+\))"
    r"|^\s*--- FAIL: (?P<go>[\w/]+)"
    r"|^test (?P<cargo>[\w:]+) \.\.\. FAILED"
    r"|^\s*(?:✕|✗) (?P<jest>[^\n]{1,120}?)(?: \(\d+ ?m?s\))?$",
    re.MULTILINE,
)
_PASSED_TEST = re.compile(
    r"^(?P<verbose>[\w./\\-]+\.py::[^\s]+) PASSED\b"
    r"|^(?P<unittest>\w+ \([\w.]+\)) \.\.\. ok$"
    r"|^\s*--- PASS: (?P<go>[\w/]+)"
    r"|^test (?P<cargo>[\w:]+) \.\.\. ok"
    r"|^\s*(?:✓|√) (?P<jest>[^\n]{1,120}?)(?: \(\d+ ?m?s\))?$",
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
_WHERE = re.compile(r"^\(Current directory: (?P<path>/[^\n)]*)\)", re.MULTILINE)
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


def outcome(text: str, *, ok: bool) -> Outcome:
    """Read an answer; `ok` is what the tool itself said of it."""
    text = text if len(text) <= 2 * _LOOK else f"{text[:_LOOK]}\n{text[-_LOOK:]}"
    text = text.replace("\r\n", "\n")
    status = _status(text)
    refused = bool(_REFUSED.match(text)) or bool(_SHELL_REFUSED.search(text[:300]))
    failed = _tests(_FAILED_TEST, text)
    stated = _STATED.search(text) if "[File: " in text else None
    where = _WHERE.search(text) if "(Current directory: " in text else None
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
        hashes={found["path"]: found["hash"][:12] for found in _HASH.finditer(text)},
    )


def _status(text: str) -> int | None:
    """The exit status, where one is stated near an end."""
    for part in (text[-400:], text[:400]):
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
