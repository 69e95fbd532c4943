"""What a fault means: the tables, asked in order.

Knows the order: what only sounds like an overflow first, then numbers, wordings, the status, and at
the end our own estimate. Refuses to know what is done about it, and the clock: a date to retry at
is no number of seconds here. Never raises, whatever it is given.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from foldline.dialects.provider_errors import patterns
from foldline.dialects.provider_errors.patterns import Kind, pattern
from foldline.dialects.provider_errors.unwrap import LONGEST, ErrorText, hear, words

SUSPICIOUS = 0.85  # of the window, R-12: above it an unexplained refusal is taken for an overflow
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT = r"(?:ms|milliseconds?|seconds?|minutes?|hours?|days?|[smhd](?![a-z]))"
_SPAN = rf"(?:[0-9]{{1,9}}(?:\.[0-9]{{1,12}})?\s?{_UNIT}\s?){{1,4}}"
_WAIT = rf"(?:try again in|retry (?:after|in)) ({_SPAN})"


@dataclass(frozen=True, slots=True)
class Fault:
    """A provider's error. Numbers are tokens, bytes or pixels, as the kind says.

    `tokens` with a count below the limit: the input fits, a smaller output heals it. `rate` with a
    count above the limit: no waiting heals it, only a smaller request.
    """

    kind: Kind
    """tokens, bytes, media, output, rate, auth, overloaded, unreachable or other."""
    message: str
    """In the provider's words."""
    limit: int | None = None
    """The most that is taken, where it was said."""
    count: int | None = None
    """What was sent, where it was said."""
    retry_after: float | None = None
    """Seconds to wait, where it was said."""
    suspected: bool = False
    """Whether the kind is our guess: a refusal without a reason, of a request that nearly fills."""


def classify(
    body: str | bytes | Mapping[str, Any] | None,
    *,
    status: int | None = None,
    filled: float | None = None,
    retry_after: str | None = None,
) -> Fault:
    """The meaning of an error's body; `filled` is the request's estimated share of the window.

    A refusal that nobody explains, above 85 % of the window, is `tokens` and `suspected`.
    """
    return _judged(hear(body), status=status, filled=filled, retry_after=retry_after)


def of_exception(fault: BaseException, *, filled: float | None = None) -> Fault:
    """The meaning of what an SDK raised, by its attributes: no SDK is imported."""
    said = ErrorText()
    for known in type(fault).__mro__:
        said.code(known.__name__)
    response = _of(fault, "response")
    status = next(
        (
            code
            for code in (
                _of(fault, "status_code"),
                _of(fault, "code"),
                _of(response, "status_code"),
            )
            if isinstance(code, int)
        ),
        None,
    )
    body: Any = _of(fault, "body")
    if body is None:
        inner = _of(fault, "details")
        body = cast("Any", response if isinstance(response, Mapping) else inner)
    hear(_printed(fault) if body is None else body, said)
    return _judged(said, status=status, filled=filled, retry_after=_header(response))


def _of(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a property of a foreign class may raise what it likes
        return None


def _printed(fault: BaseException) -> str:
    try:
        return str(fault)
    except Exception:  # noqa: BLE001 - so may its text
        return ""


def _header(response: Any) -> str | None:
    """How long to wait, as the response's headers say it."""
    headers = _of(response, "headers")
    if not isinstance(headers, Mapping):
        return None
    headers = cast("Mapping[Any, Any]", headers)
    exact, plain = headers.get("retry-after-ms"), headers.get("retry-after")
    if isinstance(exact, str):
        return f"{exact}ms"
    return plain if isinstance(plain, str) else None


def _judged(
    said: ErrorText, *, status: int | None, filled: float | None, retry_after: str | None
) -> Fault:
    text = "\n".join((*said.codes[:99], *said.texts, *said.around))[: 2 * LONGEST].lower()
    if status is None or status < 400:  # noqa: PLR2004 - an error inside a stream that began well
        told = [patterns.status_of(code) for code in said.codes]
        status = said.status or next((one for one in told if one), None)
    empty = not said.texts
    fault = _meant(said, text, status=status)
    if fault.kind == "tokens":  # fields beat words
        fault = replace(fault, limit=said.limit or fault.limit, count=said.count or fault.count)
    full = filled is not None and filled > SUSPICIOUS
    unexplained = status == 400 or (status is None and empty)  # noqa: PLR2004
    if fault.kind == "other" and full and unexplained and not _explained(text):
        fault = replace(fault, kind="tokens", suspected=True)
    waits = (_seconds(retry_after), _seconds(said.delay), _wait(text))
    return replace(
        fault,
        message="" if empty else words(said.texts[0]),
        retry_after=next((wait for wait in waits if wait is not None), None),
    )


def _meant(said: ErrorText, text: str, *, status: int | None) -> Fault:
    """The order of the tables; the first that answers."""
    if status == 402 or pattern(patterns.UNPAID).search(text):  # noqa: PLR2004
        return Fault("other", "")
    numbers = _numbers(text)
    if _hurried(said, text, status=status):
        return numbers if numbers and numbers.kind == "rate" else Fault("rate", "")
    if pattern(patterns.LATE).search(text):
        return Fault("overloaded", "")
    if pattern(patterns.CANCELLED).search(text):
        return Fault(_by_status(status), "")
    if said.limit and said.count:
        return Fault("tokens", "")
    if numbers:
        return numbers
    if pattern(patterns.WRONG_FIELD).search(text):
        return Fault("other", "")
    for kind, wording in patterns.WORDS:
        if pattern(wording).search(text):
            return Fault(kind, "")
    if status == 413 and not said.texts:  # noqa: PLR2004 - who counts bytes says so, who counts tokens does not
        return Fault("tokens", "")
    return Fault(_by_status(status), "")


def _hurried(said: ErrorText, text: str, *, status: int | None) -> bool:
    if "message larger than max" in text:
        return False  # the same code at gRPC, and about bytes
    named = any(patterns.status_of(code) == 429 for code in said.codes)  # noqa: PLR2004
    return status == 429 or named or bool(pattern(patterns.HURRIED).search(text))  # noqa: PLR2004


def _numbers(text: str) -> Fault | None:
    for kind, wording in patterns.NUMBERS:
        found = pattern(wording).search(text)
        if found:
            said = {name: int(n.replace(",", "")) for name, n in found.groupdict().items() if n}
            limit, count = said.get("limit"), said.get("count")
            if "below" in said:
                limit = said["below"] - 1
            if "over" in said and limit is not None:
                count = limit + said["over"]
            # A window of nothing is nobody's: it must not be learned.
            return Fault(kind, "", limit=limit or None, count=count)
    return None


def _explained(text: str) -> bool:
    known = (patterns.WRONG_FIELD, patterns.FORM, patterns.UNPAID, patterns.CANCELLED)
    return any(pattern(one).search(text) for one in known)


def _by_status(status: int | None) -> Kind:
    if status in {401, 403}:
        return "auth"
    if status == 413:  # noqa: PLR2004
        return "bytes"
    if status == 429:  # noqa: PLR2004
        return "rate"
    return "overloaded" if status == 408 or (status or 0) >= 500 else "other"  # noqa: PLR2004


def _wait(text: str) -> float | None:
    found = pattern(_WAIT).search(text)
    return _seconds(found[1]) if found else None


def _seconds(span: str | None) -> float | None:
    """`20`, `644ms`, `11.054s`, `1m30s` or `22 seconds` as seconds."""
    if not span:
        return None
    span = span.strip().lower()[:60]
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,12})?", span):
        return float(span)
    if not pattern(_SPAN).fullmatch(span):
        return None
    parts = re.findall(r"([0-9.]+)\s?(ms|milli|[smhd])", span)
    return sum(float(n) * _SECONDS["ms" if unit == "milli" else unit] for n, unit in parts)
