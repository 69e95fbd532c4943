"""An error, taken out of what it was wrapped in.

Knows the shapes of error bodies: JSON of any provider, JSON in strings of gateways, events of a
stream, texts of SDK exceptions with a Python dict in them, pages of proxies, and all of it cut off
or broken. Refuses to know what an error means. Never raises, and reads a bounded part of bad input.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import msgspec

from foldline.core.parts import sound

DEEPEST = 8  # wrappers: a gateway's gateway has four
MOST = 400  # values looked at in one body: what refers to itself ends too, and so does a stream
LONGEST = 16_000  # characters of one text: providers need hundreds
LOOSELY = 32_000  # characters of what is no JSON but looks like it
_INNER = ("response", "body", "error", "Error", "errors", "metadata", "raw", "message", "Message")
_OUTER = ("msg", "detail", "details", "error_description", "ResponseMetadata")
_CODES = ("type", "code", "Code", "status", "error_type", "__type", "statusCode", "HTTPStatusCode")


@dataclass(slots=True)
class ErrorText:
    """What an error says, the innermost text first; codes in small letters."""

    texts: list[str] = field(default_factory=list[str])
    around: list[str] = field(default_factory=list[str])
    codes: list[str] = field(default_factory=list[str])
    status: int | None = None
    limit: int | None = None
    count: int | None = None
    delay: str | None = None
    looks: int = 0

    def code(self, given: Any) -> None:
        """Note a code; one that is an HTTP status is the status."""
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given) if 0 <= given < 1000 else None  # noqa: PLR2004 - three digits
        if not isinstance(given, str) or not given or len(given) > 100:  # noqa: PLR2004 - no code
            return
        code = given.lower().removeprefix("litellm.").rpartition("#")[2]
        if re.fullmatch("[45][0-9][0-9]", code):
            self.status = self.status or int(code)
        elif code != "error" and code not in self.codes:
            self.codes.append(code)


def hear(body: Any, said: ErrorText | None = None) -> ErrorText:
    """What a body says."""
    said = said or ErrorText()
    _look(body, said, DEEPEST)
    return said


def _look(value: Any, said: ErrorText, depth: int) -> None:
    said.looks += 1
    if depth < 0 or said.looks > MOST:
        return
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8-sig", "replace")
    if isinstance(value, str):
        _read(value, said, depth)
    elif isinstance(value, list | tuple):
        for one in cast("list[Any]", value)[:4]:
            _look(one, said, depth - 1)
    elif isinstance(value, Mapping):
        _layer(cast("Mapping[Any, Any]", value), said, depth)


def _layer(layer: Mapping[Any, Any], said: ErrorText, depth: int) -> None:
    for key in _CODES:
        said.code(layer.get(key))
    said.limit = said.limit or _whole(layer.get("n_ctx"))
    said.count = said.count or _whole(layer.get("n_prompt_tokens"))
    delay = layer.get("retryDelay")
    if isinstance(delay, str):
        said.delay = said.delay or delay[:40]
    # `error` is where the words are, or only the name of the status that `message` explains.
    last = ("error",) if isinstance(layer.get("error"), str) else ()
    for key in (*(key for key in _INNER if key not in last), *last, *_OUTER):
        inner = layer.get(key)
        if inner is not None:
            _look(inner, said, depth - 1)


def _whole(given: Any) -> int | None:
    sound_number = isinstance(given, int) and not isinstance(given, bool) and given > 0
    return given if sound_number else None


def _read(text: str, said: ErrorText, depth: int) -> None:
    """A text: JSON, a stream, a page, words with an object among them, or words."""
    text = text.strip()
    if not text:
        return
    whole = _json(text)
    if whole is not None:
        _look(whole, said, depth - 1)
    elif not (_stream(text, said, depth) or _among(text, said, depth)):
        page = _patterns()["page"].search(text, 0, LONGEST) if text.startswith("<") else None
        words = _bare((page[1] if page else text)[:LONGEST], said).strip()
        if words:
            said.texts.append(words)


def _json(text: str) -> Any:
    if not text.startswith(("{", "[", '"')):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _stream(text: str, said: ErrorText, depth: int) -> bool:
    """Server-sent events: those that are errors, if there are any."""
    if not _patterns()["stream"].match(text):
        return False
    found = len(said.texts)
    events = [event for event in _patterns()["blank"].split(text) if "error" in event]
    for event in events[: -MOST - 1 : -1]:  # a stream ends with its error
        lines = [line.strip() for line in event.split("\n")]
        payload = "\n".join(line[5:].strip() for line in lines if line.startswith("data:"))
        one = _json(payload)
        if one is None and event is events[-1]:  # the last may be cut off
            one = loose(payload, 0)[0]
        if _failed(one) or "event: error" in lines:
            _look(payload if one is None else one, said, depth - 1)
        if len(said.texts) > found:
            return True
    # The words of an answer are no error, whatever they say.
    return bool(_patterns()["events"].search(text, 0, LONGEST))


def _failed(event: Any) -> bool:
    if not isinstance(event, Mapping):
        return False
    event = cast("Mapping[Any, Any]", event)
    kind = (event.get("type"), event.get("object"))
    return bool(event.get("error")) or "error" in kind or kind[0] == "response.failed"


def _among(text: str, said: ErrorText, depth: int) -> bool:
    """Words with an object among them, as exceptions print it: `Error code: 400 - {'error': …}`."""
    found, end = len(said.texts), 0
    for _ in range(3):
        first = _patterns()["start"].search(text, end, LOOSELY)
        if not first:
            break
        start = first.start()
        value, end = loose(text, start)
        said.looks += (end - start) // 500  # strings in strings are not read for ever
        _look(value, said, depth - 1)
        if len(said.texts) > found:
            said.around.append(_bare(text[:start][:LONGEST], said)[-500:])
            said.around.append(text[end : end + 500])
            return True
    return False


def _bare(text: str, said: ErrorText) -> str:
    """The text without the names of exceptions and statuses before it, which are noted as codes."""
    at = 0
    for _ in range(12):
        before = _patterns()["before"].match(text, at)
        if not before or before.end() == at:
            break
        for name in before.groups():
            said.code(name)
        at = before.end()
    return text[at:]


def loose(text: str, start: int) -> tuple[Any, int]:
    """The object or list that begins at a place, and where it ends: JSON or Python, broken or cut.

    No evaluation and no recursion: one pass over tokens, what is open at the end is closed.
    """
    root: list[Any] = []
    open_: list[tuple[Any, list[Any]]] = [(root, [])]
    end = min(len(text), start + LOOSELY)
    for token in _patterns()["token"].finditer(text, start, end):
        kind, (inside, key) = token.lastgroup, open_[-1]
        if kind == "mark":
            if token["mark"] == ",":
                key.clear()
            continue
        if kind == "close":
            open_.pop()
            if len(open_) == 1:
                return root[0], token.end()
            continue
        value: Any = _scalar(token[kind or 0], kind)
        if isinstance(inside, list):
            cast("list[Any]", inside).append(value)
        elif key:
            inside[key.pop()] = value
        elif isinstance(value, str):
            key.append(value)
        if kind == "open":
            open_.append((value, []))
        elif len(open_) == 1:
            return value, token.end()
    return (root[0] if root else None), end


def _scalar(token: str, kind: str | None) -> Any:
    if kind == "open":
        return {} if token.startswith("{") else []
    if kind == "text":
        inner = token[1:-1] if token[-1] == token[0] and len(token) > 1 else token[1:]
        return _patterns()["escape"].sub(_unescaped, inner)
    if token.isascii() and token.isdecimal() and len(token) < 16:  # noqa: PLR2004 - any count there is
        return int(token)
    return None if token in {"None", "null"} else token


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escape[2], escape[2])


def words(text: str) -> str:
    """A text that can be written down, for people."""
    return sound(text if len(text) <= 500 else text[:499] + "…")  # noqa: PLR2004 - a paragraph


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        "page": re.compile(r"<title>([^<]{1,300})", re.IGNORECASE),
        "stream": re.compile(r"(?:event|data|id|retry)?:", re.ASCII),
        "events": re.compile(r"^data: ?\{\"", re.MULTILINE),
        "blank": re.compile(r"\r?\n\r?\n"),
        "start": re.compile(r"""(?<!\w)b['"](?=[\[{])|\[?\{(?=\s{0,9}['"])"""),
        "before": re.compile(
            r"\s{0,9}(?:([\w.]{0,80}(?:error|exception|timeout))\s{0,9}[:-]\s{1,9}"
            r"|(?:error code|status code|status)[: ]{1,3}([45]\d\d)(?:\s{0,9}[-:]\s{1,9}|\s{0,9}$)"
            r"|\(([a-z_]{1,60})\)\s|an error occurred \((\w{1,60})\) when calling the [^:]{1,80}:\s"
            r"|([45]\d\d) (?:status code )?\(no body\)|([45]\d\d)[ .]{1,2}(?:([A-Z_]{6,40})\. )?)",
            re.ASCII | re.IGNORECASE,
        ),
        "token": re.compile(
            r"(?P<open>[{\[(])|(?P<close>[}\])])|(?P<mark>[,:])"
            r"""|[bru]?(?P<text>'(?:[^'\\]++|\\.)*+(?:'|\\?)|"(?:[^"\\]++|\\.)*+(?:"|\\?))"""
            r"|(?P<word>[^\s{}\[\](),:'\"]++)",
            re.DOTALL,
        ),
        "escape": re.compile(r"\\(?:[xu]([0-9a-fA-F]{4}|(?<=x)[0-9a-fA-F]{2})|(.))", re.DOTALL),
    }
