"""The rules of all dialects of Google: the end of a request, names, usage, keys, errors."""

import re
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from foldline.core.log import UsageReported
from foldline.core.parts import Native, Tool
from foldline.core.view import View
from foldline.dialects.base import Dialect, Vendor
from foldline.dialects.client_messages import find_last_answer
from foldline.dialects.json_slices import Json, dict_of, list_of, parse_count
from foldline.dialects.tools import Names, select_tools

LONGEST_NAME = 64
"""Of a function."""
FUNCTION_NAME = re.compile(rf"[a-zA-Z_][a-zA-Z0-9_.:-]{{0,{LONGEST_NAME - 1}}}")

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class UsageNames(NamedTuple):
    """How an API calls its counts of tokens."""

    prompt: str
    served: str
    """The results of Google's own tools, counted beside the prompt."""
    cached: str
    output: str
    thoughts: str
    """Counted beside the output."""


def parse_counts(usage: Json, names: UsageNames, *, asked: int | None) -> UsageReported | None:
    """Return the usage that an answer reports, or None."""
    prompt, served, cached, said, thought = (parse_count(usage, name) for name in names)
    report = UsageReported(
        asked=asked,
        input=None if prompt is None else prompt + (served or 0),
        cache_read=cached,
        output=None if said is None and thought is None else (said or 0) + (thought or 0),
        reasoning=thought,
    )
    return None if report == UsageReported(asked=asked) else report


def encode_error(status: int, code: str, message: str) -> Json:
    """Write an error as Google's SDK reads it."""
    said = {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}
    return {"error": {**said, "details": [{"reason": code}]}}


def select_functions(tools: Iterable[Tool], dialect: str) -> tuple[list[Tool], Names]:
    """Select the tools to write, and name them as Google wants functions to be named."""
    return select_tools(tools, dialect=dialect, longest=LONGEST_NAME, letter_first=True)


def list_function_faults(at: str, function: Json, schema: str, names: set[str]) -> list[str]:
    """List the faults of a function's declaration; `names` are those of the ones before."""
    found: list[str] = []
    name = str(function.get("name"))
    if not FUNCTION_NAME.fullmatch(name):
        found.append(f"name: {at} has the name {name!r}")
    elif name in names:
        found.append(f"unique: {at} has the name {name!r} again")
    names.add(name)
    if dict_of(function.get(schema, {"type": "object"})).get("type") != "object":
        found.append(f"tools: {at} has parameters that are not of an object")
    return found


def make_native(pieces: Sequence[Json], dialect: str) -> Native:
    """Keep parts or steps beside an event, as they came."""
    return Native(dialect, msgspec.json.encode(pieces).decode())


def decode_native(native: Native | None, dialect: str) -> list[Json] | None:
    """Return the parts or steps kept beside an event, if they are of this dialect."""
    if native is None or native.dialect != dialect:
        return None
    found = msgspec.json.decode(native.body)
    return [dict_of(piece) for piece in list_of(found)] if isinstance(found, list) else None


VENDOR = Vendor(
    name="google",
    title="Google",
    address="https://generativelanguage.googleapis.com",
    variable="GOOGLE_GEMINI_BASE_URL",
    key_header=(b"x-goog-api-key", ""),
    encode_error=encode_error,
    routes=(
        *("/v1beta/models", "/v1beta/tunedModels", "/v1beta/files", "/v1beta/cachedContents"),
        *("/v1beta/interactions", "/v1/interactions"),
        *("/v1alpha/", "/v1beta1/", "/v1/projects/", "/upload/v1"),
    ),
    marks=(b"x-goog-api-key", b"x-goog-api-client"),
    also_speaks=("openai-chat",),
)


class GoogleDialect(Dialect, ABC):
    """The overrides that both dialects of Google share."""

    vendor = VENDOR

    def refuses_end(self, view: View, parameters: Mapping[str, Any]) -> bool:
        """Whether a request would end with an answer: Google's models continue none."""
        return find_last_answer(view, self.name) is not None
