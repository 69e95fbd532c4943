"""Extracts a provider's error from whatever it is wrapped in.

Reads JSON of any provider, JSON in strings of gateways, events of a stream, texts of SDK exceptions
with a Python dict in them and pages of proxies, even cut off or broken. Never raises, and reads
only a bounded part of bad input.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import msgspec

from foldline.core.parts import replace_surrogates

DEEPEST = 8  # wrappers: a gateway behind a gateway has four
MOST = 400  # values visited in one body: bounds cyclic objects and long streams
LONGEST = 16_000  # characters of one text: providers need hundreds
LOOSELY = 32_000  # characters of almost-JSON
_INNER = ("response", "body", "error", "Error", "errors", "metadata", "raw", "message", "Message")
_OUTER = ("msg", "detail", "details", "error_description", "ResponseMetadata")
_CODES = ("type", "code", "Code", "status", "error_type", "__type", "statusCode", "HTTPStatusCode")


@dataclass(slots=True)
class ErrorText:
    """The texts of an error, the innermost first, and its codes in lower case."""

    texts: list[str] = field(default_factory=list[str])
    around: list[str] = field(default_factory=list[str])
    codes: list[str] = field(default_factory=list[str])
    status: int | None = None
    limit: int | None = None
    count: int | None = None
    delay: str | None = None
    looks: int = 0

    def add_code(self, given: Any) -> None:
        """Add a code; an HTTP status sets `status` instead."""
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given) if 0 <= given < 1000 else None  # noqa: PLR2004 - three digits
        if not isinstance(given, str) or not given or len(given) > 100:  # noqa: PLR2004 - no code
            return
        code = given.lower().removeprefix("litellm.").rpartition("#")[2]
        if re.fullmatch("[45][0-9][0-9]", code):
            self.status = self.status or int(code)
        elif code != "error" and code not in self.codes:
            self.codes.append(code)


def unwrap_error(body: Any, said: ErrorText | None = None) -> ErrorText:
    """Collect the texts, codes and numbers of an error's body."""
    said = said or ErrorText()
    _visit_value(body, said, DEEPEST)
    return said


def _visit_value(value: Any, said: ErrorText, depth: int) -> None:
    said.looks += 1
    if depth < 0 or said.looks > MOST:
        return
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8-sig", "replace")
    if isinstance(value, str):
        _visit_text(value, said, depth)
    elif isinstance(value, list | tuple):
        for one in cast("list[Any]", value)[:4]:
            _visit_value(one, said, depth - 1)
    elif isinstance(value, Mapping):
        _visit_layer(cast("Mapping[Any, Any]", value), said, depth)


def _visit_layer(layer: Mapping[Any, Any], said: ErrorText, depth: int) -> None:
    for key in _CODES:
        said.add_code(layer.get(key))
    said.limit = said.limit or _parse_count(layer.get("n_ctx"))
    said.count = said.count or _parse_count(layer.get("n_prompt_tokens"))
    delay = layer.get("retryDelay")
    if isinstance(delay, str):
        said.delay = said.delay or delay[:40]
    # `error` holds the words, or only the name of the status that `message` explains.
    last = ("error",) if isinstance(layer.get("error"), str) else ()
    for key in (*(key for key in _INNER if key not in last), *last, *_OUTER):
        inner = layer.get(key)
        if inner is not None:
            _visit_value(inner, said, depth - 1)


def _parse_count(given: Any) -> int | None:
    sound_number = isinstance(given, int) and not isinstance(given, bool) and given > 0
    return given if sound_number else None


def _visit_text(text: str, said: ErrorText, depth: int) -> None:
    """Visit a text: JSON, a stream, a page, words around an object, or plain words."""
    text = text.strip()
    if not text:
        return
    whole = _parse_json(text)
    if whole is not None:
        _visit_value(whole, said, depth - 1)
    elif not (_visit_stream(text, said, depth) or _visit_embedded(text, said, depth)):
        page = _build_patterns()["page"].search(text, 0, LONGEST) if text.startswith("<") else None
        words = _strip_prefixes((page[1] if page else text)[:LONGEST], said).strip()
        if words:
            said.texts.append(words)


def _parse_json(text: str) -> Any:
    if not text.startswith(("{", "[", '"')):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _visit_stream(text: str, said: ErrorText, depth: int) -> bool:
    """Visit the errors among server-sent events; False if the text is not a stream."""
    if not _build_patterns()["stream"].match(text):
        return False
    found = len(said.texts)
    events = [event for event in _build_patterns()["blank"].split(text) if "error" in event]
    for event in events[: -MOST - 1 : -1]:  # a stream ends with its error
        lines = [line.strip() for line in event.split("\n")]
        payload = "\n".join(line[5:].strip() for line in lines if line.startswith("data:"))
        one = _parse_json(payload)
        if one is None and event is events[-1]:  # the last may be cut off
            one = parse_loose_object(payload, 0)[0]
        if _is_failure(one) or "event: error" in lines:
            _visit_value(payload if one is None else one, said, depth - 1)
        if len(said.texts) > found:
            return True
    # The words of an answer are not an error, whatever they say.
    return bool(_build_patterns()["events"].search(text, 0, LONGEST))


def _is_failure(event: Any) -> bool:
    if not isinstance(event, Mapping):
        return False
    event = cast("Mapping[Any, Any]", event)
    kind = (event.get("type"), event.get("object"))
    return bool(event.get("error")) or "error" in kind or kind[0] == "response.failed"


def _visit_embedded(text: str, said: ErrorText, depth: int) -> bool:
    """Visit an object within words, as exceptions print it: `Error code: 400 - {'error': …}`."""
    found, end = len(said.texts), 0
    for _ in range(3):
        first = _build_patterns()["start"].search(text, end, LOOSELY)
        if not first:
            break
        start = first.start()
        value, end = parse_loose_object(text, start)
        said.looks += (end - start) // 500  # bounds strings nested in strings
        _visit_value(value, said, depth - 1)
        if len(said.texts) > found:
            said.around.append(_strip_prefixes(text[:start][:LONGEST], said)[-500:])
            said.around.append(text[end : end + 500])
            return True
    return False


def _strip_prefixes(text: str, said: ErrorText) -> str:
    """Strip leading exception names and statuses, and add them as codes."""
    at = 0
    for _ in range(12):
        before = _build_patterns()["before"].match(text, at)
        if not before or before.end() == at:
            break
        for name in before.groups():
            said.add_code(name)
        at = before.end()
    return text[at:]


def parse_loose_object(text: str, start: int) -> tuple[Any, int]:
    """Parse the JSON or Python object or list at `start`, even broken; return it and its end.

    No evaluation and no recursion: one pass over tokens; what is open at the end is closed.
    """
    root: list[Any] = []
    open_: list[tuple[Any, list[Any]]] = [(root, [])]
    end = min(len(text), start + LOOSELY)
    for token in _build_patterns()["token"].finditer(text, start, end):
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
        value: Any = _parse_token(token[kind or 0], kind)
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


def _parse_token(token: str, kind: str | None) -> Any:
    if kind == "open":
        return {} if token.startswith("{") else []
    if kind == "text":
        inner = token[1:-1] if token[-1] == token[0] and len(token) > 1 else token[1:]
        return _build_patterns()["escape"].sub(_replace_escape, inner)
    if token.isascii() and token.isdecimal() and len(token) < 16:  # noqa: PLR2004 - any real count
        return int(token)
    return None if token in {"None", "null"} else token


def _replace_escape(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escape[2], escape[2])


def truncate_message(text: str) -> str:
    """Shorten a text to 500 characters that can be encoded."""
    return replace_surrogates(text if len(text) <= 500 else text[:499] + "…")  # noqa: PLR2004 - a paragraph


@cache
def _build_patterns() -> dict[str, re.Pattern[str]]:
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
            r"""|[bru]?(?P<text>'(?>(?:[^'\\]++|\\.)*)(?:'|\\?)|"(?>(?:[^"\\]++|\\.)*)(?:"|\\?))"""
            r"|(?P<word>[^\s{}\[\](),:'\"]++)",
            re.DOTALL,
        ),
        "escape": re.compile(r"\\(?:[xu]([0-9a-fA-F]{4}|(?<=x)[0-9a-fA-F]{2})|(.))", re.DOTALL),
    }
