"""Turns a provider's error into a `Fault` with a known kind. Never raises.

First the error is extracted from whatever it is wrapped in: JSON of any provider, JSON in strings
of gateways, events of a stream, texts of SDK exceptions with a Python dict in them and pages of
proxies, even cut off or broken. Only a bounded part of bad input is read.

Then tables of wordings, codes and statuses are searched. The order: what only sounds like an
overflow, then numbers, wordings, the status, and last our own estimate of the request's size. There
is no clock here: a date to retry at is compared with the answer's own date, which also spares it
the difference of two clocks.

The patterns match lower-case text. Every gap and number in them is bounded, so a search is linear
in the text. They are compiled when the first error is read.

    <limit> <count>   what was allowed, what was sent    <over>     how much too much was sent
    <below>           an exclusive limit                 <n> <..>   another number, a short gap
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, cast

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


Kind = Literal[
    "tokens", "bytes", "media", "output", "rate", "auth", "overloaded", "unreachable", "other"
]

# The order matters: a sum of input and output is an overflow, the output alone is not.
NUMBERS: tuple[tuple[Kind, str], ...] = (
    ("rate", r"limit <limit>,(?: used <n>,)? requested <count>"),
    ("tokens", r"exceed context limit: <count> \+ <n> > <limit>"),
    ("tokens", r"prompt is too long: <count> tokens > <limit> maximum"),
    ("tokens", r"prompt is too long: <count>, model maximum context length: <limit>"),
    ("output", r"max_tokens: <count> > <limit>, which is the maximum"),
    ("tokens", r"context length is <limit> tokens and your request has <count> input tokens"),
    # This row has no <count>: the provider counts characters, not tokens.
    (
        "tokens",
        (
            r"maximum context length is <limit> tokens\. however, you requested <n> output"
            r" tokens and your prompt contains <n> characters"
        ),
    ),
    (
        "tokens",
        (
            r"maximum context length is <limit> tokens\. however, you requested <n> output"
            r" tokens and your prompt contains (?:at least )?<count> input tokens"
        ),
    ),
    (
        "tokens",
        (
            r"maximum context length is <limit> tokens[.,] however,? (?:you requested"
            r"|your messages resulted in|your request has)(?: about)? <count> (?:input )?tokens"
        ),
    ),
    ("tokens", r"configured limit of <limit> tokens\. your messages resulted in <count> tokens"),
    ("tokens", r"maximum input length is <limit> tokens"),
    ("output", r"supports at most <limit> completion tokens, whereas you provided <count>"),
    (
        "bytes",
        (
            r"(?:content|text|output|arguments|input(?:\[\d{1,9}\])?|prompt|instructions)': string"
            r" too long\. expected a string with maximum length <limit>, but got a string with"
            r" length <count>"
        ),
    ),
    ("tokens", r"prompt token count of <count> exceeds the limit of <limit>"),
    (
        "tokens",
        (
            r"input token count(?: \(<count>\))? exceeds the maximum number of tokens allowed"
            r" \(?<limit>\)?"
        ),
    ),
    ("tokens", r"input token count is <count> but (?:the )?model (?:only )?supports up to <limit>"),
    (
        "output",
        (
            r"maxoutputtokens value of <count> but the supported range is from \d{1,9}"
            r" \(inclusive\) to <below> \(exclusive\)"
        ),
    ),
    ("bytes", r"payload size exceeds the limit: <limit> bytes"),
    ("output", r"maximum tokens you requested exceeds the model limit of <limit>"),
    ("tokens", r"prompt contains <count> tokens<..>too large for model with <limit> maximum"),
    ("tokens", r"size limit exceeded by <over> tokens<..>limit for this model is <limit>"),
    ("tokens", r"tokens in the prompt cannot exceed <limit> - received <count>"),
    ("output", r"max.?tokens must be less than or equal to <limit><..>received <count>"),
    ("tokens", r"maximum prompt length is <limit> but the request contains <count>"),
    ("bytes", r"message larger than max \(<count> vs\. <limit>\)"),
    ("tokens", r"must be <= <limit>\. given: <count> `inputs`"),
    ("tokens", r"less than <limit> tokens\. given: <count>"),
    ("tokens", r"tokens \+ `max_new_tokens` must be <= <limit>"),
    ("output", r"`max_new_tokens` must be <= <limit>"),
    ("tokens", r"input \(<count> tokens\) is longer than the model's context length \(<limit>"),
    ("tokens", r"maximum context length of <limit> tokens\. you requested a total of <count>"),
    ("tokens", r"current length is <count> while limit is <limit>"),
    ("tokens", r"request \(<count> tokens\) exceeds the available context size \(<limit> tokens"),
    ("tokens", r"input \(<count> tokens\) is too large to process<..>batch size: <limit>"),
    ("tokens", r"prompt \(length <count>\)<..>maximum model length of <limit>"),
    ("tokens", r"prompt length <count> exceeds the max_model_len <limit>"),
    (
        "tokens",
        (
            r"input length \(?<count>(?: tokens)?\)? exceeds (?:the )?(?:model's )?maximum"
            r" (?:allowed (?:input )?length|context length)(?: of)? \(?<limit>"
        ),
    ),
    ("tokens", r"n_keep: <count> >= n_ctx: <limit>"),
    ("tokens", r"keep the first <count> tokens<..>context length of only <limit>"),
    ("tokens", r"exceeded model token limit: <limit> \(requested: <count>\)"),
    ("tokens", r"range of input length should be \[1, <limit>\]"),
    ("bytes", r"string value length \(<count>\) exceeds the maximum allowed \(<limit>"),
    # Any number may exceed its maximum, so the name of the output limit must come before it.
    ("output", r"max_(?:\w{1,20}_)?tokens<..>expected a value <= <limit>, but got <count>"),
    ("tokens", r"prompt too long: <count> tokens exceeds max context window of <limit>"),
    ("tokens", r"prompt has <count> tokens, but the configured context size is <limit>"),
    ("media", r"mb maximum: <count> bytes > <limit> bytes"),
    ("media", r"max allowed size(?: for many-image requests)?: <limit> pixels"),
    ("media", r"maximum of <limit> pdf pages"),
)

# Not overflows, though the words mention tokens, context or lengths.
UNPAID = (
    r"insufficient[ _](?:quota|balance|credits?|funds)|requires more credits|can only afford"
    r"|credit balance is too low|prompt tokens limit exceeded|^billing_error$"
)
HURRIED = (
    r"(?<!/)rate.?limit|throttl|too many requests|too many tokens, please wait"
    r"|(?:tokens|requests) per (?:min|hour|day)|api calls / min"
)
WRONG_FIELD = r"(?:string|array) too long\. expected|(?:string|array)_above_max_length"
CANCELLED = r"context cancell?ed"
LATE = r"deadline.?exceeded|\btimed out\b|gateway time-?out|^(?:api)?time.?out"

# Wordings without numbers, in this order; each provider code is on its own line of the text.
WORDS: tuple[tuple[Kind, str], ...] = (
    ("output", r"max_(?:\w{1,20}_)?tokens['`]? is too large|maximum output length"),
    (
        "media",
        (
            r"^\w{0,20}image_\w{1,40}$|image dimensions|image exceeds"
            r"|(?:unsupported|invalid) image\b|(?:image|audio|video|file) input is not supported"
            r"|could not process (?:image|pdf)|does(?: not|n't) support image"
            r"|too many images|at most \d{1,4} image"
        ),
    ),
    (
        "tokens",
        (
            r"^context(?:_length|_window|windowexceedederror)|^exceed_context_size"
            r"|^too_many_tokens$|^model_max_prompt_tokens"
            r"|context length exceeded|maximum context length"
            r"|exceeds? (?:the |model |model's |your )?(?:available |maximum )?"
            r"context (?:window|size|length)"
            r"|context window exceeds|longer than the (?:model's )?context length"
            r"|exceeded max context length|(?:prompt|input) is too long|prompt too long"
            r"|reduce the length of (?:the|your) (?:message|prompt|input)|too many tokens"
            r"|number of input tokens exceeds|token limit exceeded|input tokens exceed"
        ),
    ),
    (
        "bytes",
        (
            r"^request_too_large$|exceeds the maximum size|message larger than max"
            r"|(?:entity|payload|content|body) (?:is )?too large|payload size exceeds"
        ),
    ),
    (
        "auth",
        (
            r"api key not valid|(?:incorrect|invalid) (?:x-)?api.?key|^invalid_api_key$"
            r"|invalid subscription key|\bunauthorized\b"
        ),
    ),
    (
        "overloaded",
        (
            r"overloaded|^slow.?down\b|server had an error|service unavailable|bad gateway"
            r"|internal server error"
        ),
    ),
)

# Refusals of a request's form: folding does not help, however full the window is.
FORM = (
    r"tool.?(?:use|result|call|output|choice)|function.?(?:call|response)|thinking|reasoning"
    r"|signature|cache_control|encrypted|content.?filter|prefill|non-empty|must not be empty"
    r"|whitespace|\broles?\b|not (?:supported|permitted|found)|extra inputs|unrecognized"
    r"|duplicate item|(?:must|should) match|required (?:oneof )?(?:field|parameter|property)"
    r"|must include|missing|(?:begins|starts) with '"
    r"|does not exist|\btemperature\b|\btop_p\b"
)

_STATUS: dict[int, str] = {
    400: "invalid_request_error invalid_argument badrequesterror badrequest validationexception "
    "invalid_parameter_error failed_precondition invalidrequesterror "
    "contextwindowexceedederror",
    401: "authentication_error unauthenticated authenticationerror unrecognizedclientexception "
    "expiredtokenexception invalid_api_key",
    402: "billing_error",
    403: "permission_error permission_denied permissiondeniederror accessdeniedexception",
    404: "not_found_error not_found notfounderror resourcenotfoundexception deploymentnotfound",
    408: "modeltimeoutexception timeout apitimeouterror timeouterror",
    409: "conflict_error conflicterror",
    413: "request_too_large",
    422: "unprocessableentityerror",
    429: "rate_limit_error rate_limit_exceeded ratelimiterror resource_exhausted "
    "throttlingexception too_many_requests toomanyrequestsexception throttling "
    "servicequotaexceededexception",
    500: "api_error internal internal_error server_error internalservererror "
    "internalserverexception apiconnectionerror connectionerror",
    503: "unavailable serviceunavailableerror serviceunavailableexception modelnotreadyexception",
    504: "timeout_error deadline_exceeded",
    529: "overloaded_error",
}

_NAMED = {
    "limit": r"(?P<limit>[0-9][0-9,]{0,20})",
    "count": r"(?P<count>[0-9][0-9,]{0,20})",
    "below": r"(?P<below>[0-9][0-9,]{0,20})",
    "over": r"(?P<over>[0-9][0-9,]{0,20})",
    "n": r"[0-9][0-9,]{0,20}",
    "..": r".{0,200}?",
}


def status_of(code: str) -> int | None:
    """Return the HTTP status that belongs to a provider's code or an SDK's error name."""
    return _build_status_table().get(code)


@cache
def _build_status_table() -> dict[str, int]:
    return {name: status for status, names in _STATUS.items() for name in names.split()}


@cache
def build_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of the tables."""
    return re.compile(
        re.sub(r"<(limit|count|below|over|n|\.\.)>", lambda name: _NAMED[name[1]], text),
        re.ASCII | re.DOTALL | re.MULTILINE,
    )


SUSPICIOUS = 0.85  # share of the window above which an unexplained refusal counts as an overflow
_LONGEST_WAIT = 2.0**31  # seconds: what HTTP makes of a number that is too large to be meant
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT = r"(?:ms|milliseconds?|seconds?|minutes?|hours?|days?|[smhd](?![a-z]))"
_SPAN = rf"(?:[0-9]{{1,20}}(?:\.[0-9]{{1,12}})?\s?{_UNIT}\s?){{1,4}}"
_WAIT = rf"(?:try again in|retry (?:after|in)) ({_SPAN})"


@dataclass(frozen=True, slots=True)
class Fault:
    """A provider's error. Numbers are tokens, bytes or pixels, depending on the kind.

    `tokens` with a count below the limit: the input fits, a smaller output is enough. `rate` with a
    count above the limit: waiting does not help, only a smaller request does.
    """

    kind: Kind
    """tokens, bytes, media, output, rate, auth, overloaded, unreachable or other."""
    message: str
    """In the provider's words."""
    limit: int | None = None
    """The maximum, if stated."""
    count: int | None = None
    """What was sent, if stated."""
    retry_after: float | None = None
    """Seconds to wait, if stated."""
    suspected: bool = False
    """Whether the kind is our guess: an unexplained refusal of a request near the window's size."""


def classify_error(
    body: str | bytes | Mapping[str, Any] | None,
    *,
    status: int | None = None,
    filled: float | None = None,
    retry_after: str | None = None,
    date: str | None = None,
) -> Fault:
    """Classify an error's body; `filled` is the request's estimated share of the window.

    `retry_after` and `date` are the headers of the answer. An unexplained refusal above 85 % of the
    window is `tokens` and `suspected`.
    """
    wait = _parse_retry_after(retry_after, date)
    return _classify_error_text(unwrap_error(body), status=status, filled=filled, wait=wait)


def of_exception(fault: BaseException, *, filled: float | None = None) -> Fault:
    """Classify an SDK's exception by its attributes; imports no SDK."""
    said = ErrorText()
    for known in type(fault).__mro__:
        said.add_code(known.__name__)
    response = _read_attribute(fault, "response")
    codes = (
        _read_attribute(fault, "status_code"),
        _read_attribute(fault, "code"),
        _read_attribute(response, "status_code"),
    )
    status = next((code for code in codes if isinstance(code, int)), None)
    body: Any = _read_attribute(fault, "body")
    if body is None:
        inner = _read_attribute(fault, "details")
        body = cast("Any", response if isinstance(response, Mapping) else inner)
    unwrap_error(_render_exception(fault) if body is None else body, said)
    wait = _find_retry_after(response)
    return _classify_error_text(said, status=status, filled=filled, wait=wait)


def _read_attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a foreign property may raise anything
        return None


def _render_exception(fault: BaseException) -> str:
    try:
        return str(fault)
    except Exception:  # noqa: BLE001 - so may its `__str__`
        return ""


def _find_retry_after(response: Any) -> float | None:
    """Return the seconds to wait that the response's headers ask for."""
    headers = _read_attribute(response, "headers")
    if not isinstance(headers, Mapping):
        return None
    headers = cast("Mapping[Any, Any]", headers)
    exact, plain, date = map(headers.get, ("retry-after-ms", "retry-after", "date"))
    if isinstance(exact, str):
        return _parse_seconds(f"{exact}ms")
    if not isinstance(plain, str):
        return None
    return _parse_retry_after(plain, date if isinstance(date, str) else None)


def _classify_error_text(
    said: ErrorText, *, status: int | None, filled: float | None, wait: float | None
) -> Fault:
    text = "\n".join((*said.codes[:99], *said.texts, *said.around))[: 2 * LONGEST].lower()
    if status is None or status < 400:  # noqa: PLR2004 - an error inside a stream that began well
        statuses = [status_of(code) for code in said.codes]
        status = said.status or next((one for one in statuses if one), None)
    empty = not said.texts
    fault = _match_tables(said, text, status=status)
    if fault.kind == "tokens":  # fields beat words
        fault = replace(fault, limit=said.limit or fault.limit, count=said.count or fault.count)
    full = filled is not None and filled > SUSPICIOUS
    unexplained = status == 400 or (status is None and empty)  # noqa: PLR2004
    if fault.kind == "other" and full and unexplained and not _is_explained(text):
        fault = replace(fault, kind="tokens", suspected=True)
    waits = (wait, _parse_seconds(said.delay), _find_wait(text))
    return replace(
        fault,
        message="" if empty else truncate_message(said.texts[0]),
        retry_after=next((wait for wait in waits if wait is not None), None),
    )


def _match_tables(said: ErrorText, text: str, *, status: int | None) -> Fault:
    """Ask the tables in order; the first match wins."""
    if status == 402 or build_pattern(UNPAID).search(text):  # noqa: PLR2004
        return Fault("other", "")
    numbers = _match_numbers(text)
    if _is_rate_limited(said, text, status=status):
        return numbers if numbers and numbers.kind == "rate" else Fault("rate", "")
    if build_pattern(LATE).search(text):
        return Fault("overloaded", "")
    if build_pattern(CANCELLED).search(text):
        return Fault(_by_status(status), "")
    if said.limit and said.count:
        return Fault("tokens", "")
    if numbers:
        return numbers
    if build_pattern(WRONG_FIELD).search(text):
        return Fault("other", "")
    for kind, wording in WORDS:
        if build_pattern(wording).search(text):
            return Fault(kind, "")
    if status == 413 and not said.texts:  # noqa: PLR2004 - providers that count bytes say so
        return Fault("tokens", "")
    return Fault(_by_status(status), "")


def _is_rate_limited(said: ErrorText, text: str, *, status: int | None) -> bool:
    if "message larger than max" in text:
        return False  # gRPC uses the same code for too many bytes
    named = any(status_of(code) == 429 for code in said.codes)  # noqa: PLR2004
    return status == 429 or named or bool(build_pattern(HURRIED).search(text))  # noqa: PLR2004


def _match_numbers(text: str) -> Fault | None:
    for kind, wording in NUMBERS:
        found = build_pattern(wording).search(text)
        if found:
            said = {name: int(n.replace(",", "")) for name, n in found.groupdict().items() if n}
            limit, count = said.get("limit"), said.get("count")
            if "below" in said:
                limit = said["below"] - 1
            if "over" in said and limit is not None:
                count = limit + said["over"]
            # A limit of 0 is nonsense and must not be learned as a window.
            return Fault(kind, "", limit=limit or None, count=count)
    return None


def _is_explained(text: str) -> bool:
    known = (WRONG_FIELD, FORM, UNPAID, CANCELLED)
    return any(build_pattern(one).search(text) for one in known)


def _by_status(status: int | None) -> Kind:
    if status in {401, 403}:
        return "auth"
    if status == 413:  # noqa: PLR2004
        return "bytes"
    if status == 429:  # noqa: PLR2004
        return "rate"
    return "overloaded" if status == 408 or (status or 0) >= 500 else "other"  # noqa: PLR2004


def _find_wait(text: str) -> float | None:
    found = build_pattern(_WAIT).search(text)
    return _parse_seconds(found[1]) if found else None


def _parse_retry_after(said: str | None, date: str | None) -> float | None:
    """Parse a Retry-After header: seconds, or a date, which is compared with the answer's."""
    wait = _parse_seconds(said)
    if wait is not None or not said or not date:
        return wait
    until, since = _parse_http_date(said), _parse_http_date(date)
    if until is None or since is None:
        return None
    return min(max(until - since, 0.0), _LONGEST_WAIT)


def _parse_http_date(text: str) -> float | None:
    """Parse a date in any of HTTP's three forms into seconds since 1970."""
    from email.utils import mktime_tz, parsedate_tz  # noqa: PLC0415 - few answers need it

    try:
        found = parsedate_tz(text[:60])
        return None if found is None else float(mktime_tz((*found[:9], found[9] or 0)))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _parse_seconds(span: str | None) -> float | None:
    """Parse `20`, `644ms`, `11.054s`, `1m30s` or `22 seconds` into seconds."""
    if not span:
        return None
    span = span.strip().lower()[:60]
    plain = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms)?", span)
    if plain:
        return min(float(plain[1]) * _SECONDS[plain[2] or "s"], _LONGEST_WAIT)
    if not build_pattern(_SPAN).fullmatch(span):
        return None
    parts = re.findall(r"([0-9.]+)\s?(ms|milli|[smhd])", span)
    seconds = sum(float(n) * _SECONDS["ms" if unit == "milli" else unit] for n, unit in parts)
    return min(seconds, _LONGEST_WAIT)
