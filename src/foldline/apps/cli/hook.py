"""`foldline hook claude`: warn in Claude Code, before people pay for an expired cache.

Claude Code runs it when a person sends a prompt or resumes a session, with a JSON object on stdin.
It reads the end of the session's transcript, asks nobody, writes no file, and always exits with 0.
`main` calls `run_claude_hook` without the rest of the command line, and what only an expired cache
needs is imported then: every prompt waits for it.
"""

import os
import sys
from collections.abc import Generator, Iterable
from datetime import datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

if TYPE_CHECKING:
    from foldline.core.cold_cache import ColdCall

_BLOCK = 1_000_000  # bytes read at a time, from the end
_MOST = 32_000_000  # bytes in which the last answer must be
_MOST_PLANNED = 8_000_000  # bytes of a transcript that is read whole: that takes a second
_ASKS = "UserPromptSubmit"
_BEFORE_A_CALL = frozenset((_ASKS, "SessionStart"))
_MOST_TOKENS = 100_000_000  # no window holds more: such a count is a broken one
_CALLS = 50  # records of answers in which the cache's lifetime must show
_RECORDED, _SAID = b'"hook_system_message"', b"The cache has expired"  # what we said, on record
_OWN = ("/clear", "/compact")  # commands that begin anew: the next request is another
_USUAL, _LONG = 300.0, 3_600.0  # seconds that Anthropic keeps a prompt


class _HookInput(msgspec.Struct):
    """What Claude Code tells a hook."""

    transcript_path: str
    prompt: str | None = None
    hook_event_name: str = _ASKS


class _CacheWrites(msgspec.Struct):
    """Tokens written to the cache, by how long they are kept."""

    ephemeral_1h_input_tokens: int | None = None
    ephemeral_5m_input_tokens: int | None = None


class _RecordedUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheWrites | None = None


class _RecordedMessage(msgspec.Struct):
    model: str
    usage: _RecordedUsage


class _RecordedAnswer(msgspec.Struct, tag_field="type", tag="assistant"):
    """A record of an answer; one answer may have several, each with its usage."""

    message: _RecordedMessage
    timestamp: datetime
    isSidechain: bool | None = None  # noqa: N815 - the file's name


class _CompactionMark(msgspec.Struct):
    """A record as it is where the conversation was compacted."""

    subtype: str | None = None
    isCompactSummary: bool | None = None  # noqa: N815 - the file's name


class LastCall(NamedTuple):
    """The last call of a transcript."""

    model: str
    time: float
    """When its answer came, in seconds since 1970."""
    input: int
    output: int
    lifetime: float
    """How many seconds its cache lives; 0 if it does not say."""
    is_told: bool = False
    """Whether the person was warned since."""


def claude() -> int:
    """Warn in Claude Code that the cache has expired, as a hook of it.

    Reads the hook's JSON on stdin; prints a JSON object with a message for the person, or nothing.
    examples/claude-code-plugin is a plugin that calls it.
    """
    return run_claude_hook(sys.stdin.buffer)


def run_claude_hook(given: BinaryIO) -> int:
    """Read the hook's input, and print what Claude Code shall show; never fails."""
    if os.environ.get("FOLDLINE_RUN"):  # its gateway folds by itself where that is cheaper
        return 0
    try:
        event = msgspec.json.decode(given.read(), type=_HookInput)
        if event.hook_event_name not in _BEFORE_A_CALL:  # no call could be spared
            return 0
        said = describe_claude_session(Path(event.transcript_path), time(), event.prompt or "")
        if said:
            sys.stdout.write(msgspec.json.encode({"systemMessage": said}).decode() + "\n")
            sys.stdout.flush()
    except Exception:  # noqa: BLE001, S110 - a hook that fails must not stand in a prompt's way
        pass
    return 0


def describe_claude_session(path: Path, now: float, prompt: str = "") -> str:
    """Say what the next message of a session costs; "" if its cache is still there."""
    if prompt.startswith(_OWN):
        return ""
    path = path.expanduser()
    if not path.is_file():  # a pipe would never end
        return ""
    call = find_last_call(path)
    if call is None or call.is_told or now - call.time <= call.lifetime:
        return ""
    found = estimate_next_call(call, now, prompt=prompt, path=path)
    return _render_for_claude(found) if found else ""


def find_last_call(path: Path) -> LastCall | None:
    """Find the last call in a transcript, reading from its end; None if a compaction follows it."""
    found: LastCall | None = None
    for call in _iterate_calls(_iterate_lines_from_end(path)):
        found = found or call
        if call.lifetime:  # a call that only reads does not tell the lifetime
            return found._replace(lifetime=call.lifetime)
    return found and found._replace(lifetime=_USUAL)


def estimate_next_call(
    call: LastCall, now: float, *, prompt: str = "", path: Path | None = None
) -> "ColdCall | None":
    """Estimate the call after the last one; with the transcript's `path` after a fold, too."""
    from functools import partial  # noqa: PLC0415 - see the module's docstring

    from foldline.core.cold_cache import estimate_cold_call, replace_write_price  # noqa: PLC0415
    from foldline.core.tokens import count_tokens  # noqa: PLC0415
    from foldline.models.catalog import resolve_model  # noqa: PLC0415

    prices = resolve_model(call.model).prices
    estimate = partial(
        estimate_cold_call,
        replace_write_price(prices) if call.lifetime > _USUAL else prices,
        tokens=call.input + call.output + count_tokens(prompt),
        sent=call.input,
        seconds=now - call.time,
        lifetime=call.lifetime,
    )
    found = estimate()
    if found is None or path is None or path.stat().st_size > _MOST_PLANNED:
        return found
    from foldline.apps.cli.plan_transcript import estimate_folded_size  # noqa: PLC0415

    folded = estimate_folded_size(path, call.model, prompt, sent=call.input)
    return estimate(folded=folded) if folded else found


def _render_for_claude(found: "ColdCall") -> str:
    """Render it for somebody whose /compact sends the whole conversation once more."""
    from dataclasses import replace  # noqa: PLC0415 - see the module's docstring

    from foldline.core.cold_cache import render_cold_call  # noqa: PLC0415
    from foldline.core.prices import format_dollars  # noqa: PLC0415

    said = render_cold_call(replace(found, folded=None))
    advice = "/compact costs as much, /clear nothing."
    if found.folded is not None:
        fold = format_dollars(found.folded, is_rough=True)
        advice = f"{advice[:-1]}; under `foldline run claude` it would be folded: about {fold}."
    return f"{said} {advice} (At API prices, without the answer.)"


def _iterate_calls(lines: Iterable[bytes]) -> Generator[LastCall]:
    """Yield the last calls, the last first, back to where the conversation was compacted."""
    answers, is_told = 0, False
    for line in lines:
        if (b'"compact_boundary"' in line or b'"isCompactSummary"' in line) and _is_boundary(line):
            return
        is_told = is_told or (_RECORDED in line and _SAID in line)
        if (call := _parse_call(line)) is not None:
            yield call._replace(is_told=is_told)
            answers += 1
        if answers >= _CALLS:
            return


def _iterate_lines_from_end(path: Path) -> Generator[bytes]:
    """Yield a file's lines, the last first, until enough was read."""
    with path.open("rb") as file:
        place = file.seek(0, os.SEEK_END)
        least = max(place - _MOST, 0)
        pieces: list[bytes] = []  # of a line whose beginning was not read yet, the last first
        while place > least:
            size = min(_BLOCK, place - least)
            place = file.seek(place - size)
            first, *lines = file.read(size).split(b"\n")
            if lines:
                yield b"".join((lines.pop(), *reversed(pieces)))
                yield from reversed(lines)
                pieces = []
            pieces.append(first)
        if not place:
            yield b"".join(reversed(pieces))


def _parse_call(line: bytes) -> LastCall | None:
    """Parse an answer of the main conversation; None for every other line, however odd."""
    if b'"usage"' not in line or b'"assistant"' not in line:
        return None
    try:
        answer = msgspec.json.decode(line, type=_RecordedAnswer)
    except (msgspec.DecodeError, RecursionError):
        return None
    used = answer.message.usage
    read, written = used.cache_read_input_tokens or 0, used.cache_creation_input_tokens or 0
    if answer.isSidechain or not 0 < read + written <= _MOST_TOKENS:
        return None  # a sub-agent's, the client's own words, or a call that was not cached
    kept = used.cache_creation or _CacheWrites()
    hour, minutes = kept.ephemeral_1h_input_tokens or 0, kept.ephemeral_5m_input_tokens or 0
    return LastCall(
        answer.message.model,
        answer.timestamp.timestamp(),
        used.input_tokens + read + written,
        used.output_tokens or 0,
        _LONG if hour > minutes else _USUAL if minutes else 0.0,
    )


def _is_boundary(line: bytes) -> bool:
    """Whether a line says that the conversation was compacted."""
    try:
        body = msgspec.json.decode(line, type=_CompactionMark)
    except (msgspec.DecodeError, RecursionError):
        return False
    return body.subtype == "compact_boundary" or body.isCompactSummary is True
