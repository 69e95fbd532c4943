"""The registry of dialects: what each is, and which one a caller means.

A dialect is chosen by what the caller does: the path of a request, `open(dialect=…)`, the shape of
a message. A model's name decides only where nobody says more. A new dialect is a folder beside this
module, with a `dialect.py` that describes it, and one line in `DIALECTS`. Its modules are imported
when it is used.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import msgspec

from foldline.core.log import Event, UsageReported
from foldline.core.parts import Tool
from foldline.core.request import Request
from foldline.core.view import View
from foldline.dialects.client_messages import STATEFUL, ClientForm, FoldMark
from foldline.dialects.json_slices import Json
from foldline.dialects.model_names import is_relayed, names_claude, names_gemini
from foldline.dialects.sse import SseEvent
from foldline.errors import BadInput, FormatError

Encode: TypeAlias = Callable[[Request, Mapping[str, Any]], bytes]


class _Row(NamedTuple):
    """What is known of a dialect without importing it."""

    folder: str
    paths: tuple[str, ...]
    """How the paths end to which its requests are posted."""
    compact_paths: tuple[str, ...] = ()
    """How the paths end to which a history is posted to be compacted."""
    count_paths: tuple[str, ...] = ()
    """How the paths end to which a request is posted to be counted."""


DIALECTS: dict[str, _Row] = {
    "openai-chat": _Row("openai_chat", ("/chat/completions",)),
    "anthropic": _Row("anthropic", ("/v1/messages",)),
    "gemini": _Row("gemini", (":generateContent", ":streamGenerateContent"), (), (":countTokens",)),
    "gemini-interactions": _Row("gemini_interactions", ("/interactions",)),
    "openai-responses": _Row(
        "openai_responses", ("/responses",), ("/responses/compact",), ("/responses/input_tokens",)
    ),
}
"""Every dialect, by the name that logs record; the last takes messages of types that none knows."""
CHAT, ANTHROPIC, GEMINI = "openai-chat", "anthropic", "gemini"
_COMPATIBLE = "/openai"  # how the address of Google's OpenAI-compatible route ends
_PLAIN = {"role", "content", "name"}  # fields of a message that every dialect may mean


class Assembly(Protocol):
    """An answer being streamed."""

    fault: Json | None

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether something was said or refused: what came before only announces an answer."""
        ...

    def add_event(self, data: str, *, whole: bool = True) -> None:
        """Add one event's data."""
        ...

    def build_body(self) -> Json:
        """Return the answer as if it had not been streamed."""
        ...


class JoinedAnswer(Protocol):
    """Answers of a model, one after the other, as the one answer that a client sees.

    The client does not see the calls of our tools, which the proxy answers itself before it asks
    the model again.
    """

    def add_event(self, sent: SseEvent) -> list[SseEvent]:
        """Take an event of the answer under way; return the events that the client gets."""
        ...

    def end_answer(self, *, last: bool) -> list[SseEvent]:
        """End the answer under way; return what was held back of it if it is the `last`.

        Call it once the answer is complete, or broken. What comes after the last passes at once.
        """
        ...

    def join_bodies(self, bodies: Sequence[Json]) -> Json:
        """Return the one body that stands for whole answers."""
        ...


class Compaction(Protocol):
    """How clients ask to compact a history; a module of this shape."""

    def remove_trigger(self, body: bytes) -> bytes | None:
        """Remove from a request what asks to compact its history; None if it does not ask."""
        ...

    def find_threshold(self, parameters: Mapping[str, Any]) -> int | None:
        """Return the tokens from which on a request asks to be compacted on its way, if any."""
        ...

    def write_answer(
        self, body: bytes, mark: FoldMark, *, name: str, created: int, posted: bool
    ) -> tuple[str, bytes]:
        """Write the content type and the body of an answer that names a fold.

        `posted` says whether the history was posted to a path that only compacts.
        """
        ...


@dataclass(frozen=True, slots=True)
class Vendor:
    """Whose API a dialect is: where it is, how its clients show a key and read errors."""

    name: str
    """As operators write it: `--upstream openai=URL`; also the name of its SDK's package."""
    title: str
    address: str
    """The SDK's default address."""
    variable: str
    """The environment variable that sets another."""
    key_header: tuple[bytes, str]
    """The header that holds a key, and what stands before the key."""
    encode_error: Callable[[int, str, str], Json]
    """Writes an error of a gateway: status, code, words."""
    version: str = ""
    """The version at the end of its address, if the address holds it and not the path."""
    routes: tuple[str, ...] = ()
    """How paths begin that only its clients use."""
    marks: tuple[bytes, ...] = ()
    """Headers that only its clients send."""
    also_speaks: tuple[str, ...] = ()
    """Dialects of other vendors in which its models may be asked, too."""


class PathFacts(NamedTuple):
    """What a request's path says of it, in dialects whose bodies do not."""

    model: str
    streams: bool


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to write requests and read the messages of clients and servers."""

    name: str
    vendor: Vendor
    encoder: int
    encode: Encode
    assembly: Callable[[], Assembly]
    join_answers: Callable[[Callable[[str], bool]], JoinedAnswer]
    """Joins answers to one for a client; the argument says whether a tool of this name is ours."""
    blocks: Callable[[Request], list[bytes]]
    """Encodes the content of a request, piece by piece, without cache marks."""
    is_silent: Callable[[Request], bool]
    """Whether a request would have no messages."""
    parse_message: Callable[[Mapping[str, Any], int | None], list[Event]]
    """Parses a message; the second argument is the last event that a model's message saw."""
    parse_answer: Callable[[Mapping[str, Any], int | None, int | None], list[Event]]
    """Parses a whole answer: the last event it saw, and where its request was recorded."""
    parse_tools: Callable[[Mapping[str, Any]], list[Tool]]
    """Parses a tool; in some dialects one dict declares several."""
    parse_usage: Callable[[Json], UsageReported | None]
    """Parses what an answer's body says of usage, whatever else it lacks; None if nothing."""
    is_answer: Callable[[Mapping[str, Any]], bool]
    is_message: Callable[[Mapping[str, Any]], bool]
    """Whether only this dialect writes a message so."""
    is_tool: Callable[[Mapping[str, Any]], bool]
    """Whether only this dialect writes a tool so."""
    is_stream_event: Callable[[Mapping[str, Any]], bool]
    """Whether only this dialect streams such an event."""
    list_faults: Callable[[Mapping[str, Any]], list[str]]
    """Lists what its provider would refuse in a request's body."""
    read_delta: Callable[[Json], str]
    """Returns the text that one event of a stream adds."""
    read_thought: Callable[[Json], str]
    """Returns the reasoning that one event of a stream adds, as far as the provider shows it."""
    bounds: tuple[str, ...]
    """The parameters that limit the length of the answer; the first is written. A dot stands
    between the name of an object and that of its field."""
    sdk_method: tuple[str, ...]
    """The SDK's method that sends its requests: ("chat", "completions", "create")."""
    sdk_arguments: Mapping[str, Any]
    """Arguments on which that method insists, whatever body it is given."""
    takes_tool: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether it writes a tool so, as another dialect does too; None if none does."""
    messages: str = "messages"
    """The field of a request that holds its messages."""
    results_in: str = ""
    """The field of a message in which all results of an answer stand; "" if each is a message."""
    orders_results: bool = False
    """Whether results stand in the order of their calls."""
    fit_results: Callable[[bytes, bytes], bytes] = lambda results, _answer: results
    """Gives written results the ids of an answer's calls, where our own ids for these differ."""
    write_question: Callable[[str], Json] = lambda text: {"role": "user", "content": text}
    """Writes a user's message of one text."""
    fixed: tuple[str, str] = ("system", "tools")
    """The fields that hold its system prompt and its tools."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names of a request's fields, and the usual ones."""
    server_state: tuple[str, ...] = STATEFUL
    """Fields that refer to state on the server: such a request is not the whole history."""
    read_path: Callable[[str, str], PathFacts] | None = None
    """Reads a request's path and query, where they name the model and not the body."""
    must_bound: bool = False
    """Whether a request must limit its answer."""
    allows_prefill: bool = False
    """Whether the model continues an answer that the client has begun."""
    must_be_told: Callable[[View, Mapping[str, Any]], bool] = lambda _view, _parameters: False
    """Whether a request would end with an answer that the provider does not continue."""
    thinks_manually: Callable[[Mapping[str, Any]], bool] = lambda _parameters: False
    """Whether a request asks for thinking without which no tool loop goes on."""
    change_thoughtless: Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], Json] = (
        lambda _parameters, _messages: {}
    )
    """Returns the fields to change where such a loop begins without its thinking."""
    fit_parameters: Callable[[Request, Mapping[str, Any]], Mapping[str, Any]] = (
        lambda _request, parameters: parameters
    )
    """Leaves out parameters that the provider refuses beside what the request shows."""
    is_model_item: Callable[[bytes], bool] | None = None
    """Whether an item of a request belongs to the model's turn with its neighbours, where several
    items of a list are one message; None where each is one."""
    is_content: Callable[[bytes], bool] | None = None
    """Whether an item of a request is only a content, where a list of these is one message."""
    write_count: Callable[[int], Json] | None = None
    """Writes the answer to a request that was posted to be counted."""
    chain_field: str = ""
    """The field by which a request names an earlier answer, and its server adds that history."""
    compaction: Compaction | None = None
    """Where clients ask their server to compact a history: how they ask, and what is answered."""
    parse_turn: Callable[[Sequence[Mapping[str, Any]], int | None], list[Event]] | None = None
    """Parses the items of one turn of the model, where it has several."""
    stream_parameters: Mapping[str, Any] | None = None
    """Parameters without which a stream reports no usage."""

    @property
    def form(self) -> ClientForm:
        """How clients write messages."""
        return _import_module(self.name, "client_messages")

    def read_path_facts(self, path: str, query: str) -> PathFacts | None:
        """Return what a request's path says of it; None where its body says all."""
        return self.read_path(path, query) if self.read_path is not None else None

    def build_parameters(self, given: Mapping[str, Any], *, most: int) -> Json:
        """Return the parameters, with a limit of `most` tokens if the dialect needs one."""
        bound = {self.bounds[0]: most} if self.must_bound else {}
        return {**bound, **given}

    def find_bound(self, parameters: Mapping[str, Any]) -> tuple[str, int] | None:
        """Find the parameter that limits the answer, and its value."""
        for name in self.bounds:
            head, _, inner = name.partition(".")
            found = _decode(parameters.get(head))
            if inner:
                held = isinstance(found, Mapping)
                found = _decode(cast("Json", found).get(inner)) if held else None
            if type(found) is int and found > 0:
                return name, found
        return None

    def lower_bound(self, parameters: Mapping[str, Any], name: str, most: int) -> Json:
        """Return parameters with another value of the one that limits the answer."""
        head, _, inner = name.partition(".")
        return {**parameters, head: {**parameters.get(head, {}), inner: most} if inner else most}

    def replace_bounds(self, parameters: Mapping[str, Any], most: int) -> Json:
        """Return parameters in which the answer is limited once, as the dialect usually does."""
        kept: Json = {**parameters}
        for name in self.bounds:
            head, _, inner = name.partition(".")
            held = kept.pop(head, None)
            if inner and isinstance(held, Mapping):
                fields = cast("Mapping[str, Any]", held)
                kept[head] = {key: value for key, value in fields.items() if key != inner}
        return self.lower_bound(kept, self.bounds[0], most)


def _decode(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


@cache
def _import_module(name: str, module: str) -> Any:
    return import_module(f"foldline.dialects.{DIALECTS[name].folder}.{module}")


def get_dialect(name: str) -> Dialect:
    """Return a dialect by its name in `DIALECTS`."""
    return _import_module(name, "dialect").DIALECT


def list_dialects() -> list[Dialect]:
    """List all dialects."""
    return [get_dialect(name) for name in DIALECTS]


def list_vendors() -> dict[str, Vendor]:
    """List whose APIs the dialects are, by name."""
    return {dialect.vendor.name: dialect.vendor for dialect in list_dialects()}


def find_path_dialect(path: str) -> Dialect | None:
    """Return the dialect of a URL path, or None."""
    return _find_dialect(lambda row: path.endswith(row.paths))


def find_compact_dialect(path: str) -> Dialect | None:
    """Return the dialect of a URL path to which histories are posted to be compacted, or None."""
    return _find_dialect(lambda row: path.endswith(row.compact_paths))


def find_count_dialect(path: str) -> Dialect | None:
    """Return the dialect of a URL path to which requests are posted to be counted, or None."""
    return _find_dialect(lambda row: path.endswith(row.count_paths))


def _find_dialect(is_meant: Callable[[_Row], bool]) -> Dialect | None:
    return next((get_dialect(name) for name, row in DIALECTS.items() if is_meant(row)), None)


def find_request_vendor(path: str, headers: Iterable[bytes]) -> Vendor:
    """Return whose client sends a request: by its path, or by a header that only one SDK sends."""
    meant = find_path_dialect(path)
    if meant is not None:
        return meant.vendor
    names = {*headers}
    first, *others = list_vendors().values()
    for vendor in others:
        if path.startswith(vendor.routes or "\0") or names.intersection(vendor.marks):
            return vendor
    return first


def choose_model_dialect(model: str) -> Dialect:
    """Return the usual dialect of a model's name; also knows Bedrock's and Vertex's names."""
    if names_claude(model):
        return get_dialect(ANTHROPIC)
    return get_dialect(GEMINI if names_gemini(model) else CHAT)


def choose_dialect(model: str, asked: object, *, address: str | None = None) -> Dialect:
    """Return the dialect that was asked for, if the model's vendor speaks it; else the usual one.

    A session that switches to another vendor's model goes on in that vendor's usual dialect. An
    `address` may be one at which only one dialect is spoken: a relay that serves the models of
    others, by names that begin with theirs, speaks OpenAI's chat.
    """
    usual = choose_model_dialect(model)
    if address and address.rstrip("/").endswith(_COMPATIBLE):
        asked = CHAT
    if address and usual.name != CHAT and is_relayed(model, address):
        return get_dialect(CHAT)
    if isinstance(asked, str) and asked in DIALECTS:
        wanted = get_dialect(asked)
        spoken = wanted.vendor == usual.vendor or asked in usual.vendor.also_speaks
        return wanted if spoken else usual
    return usual


def find_client_dialect(client: Any) -> Dialect:
    """Return the dialect that a model's client speaks: its own, or that of its name and address."""
    if isinstance(own := getattr(client, "dialect", None), Dialect):
        return own
    address = getattr(client, "base_url", None)
    return choose_dialect(client.name, None, address=address if isinstance(address, str) else None)


def find_view_dialect(view: View) -> Dialect:
    """Return the dialect that a session speaks: its settings may name one, or an address."""
    asked, address = view.settings.get("dialect"), view.settings.get("base_url")
    return choose_dialect(view.model, asked, address=address if isinstance(address, str) else None)


def must_be_dialect(name: str) -> str:
    """Return a dialect's name; raises `BadInput` for an unknown one."""
    if name not in DIALECTS:
        raise BadInput(f"dialect={name!r} is none; give one of {', '.join(DIALECTS)}")
    return name


def resolve_named_dialect(name: str) -> Dialect:
    """Return the dialect of a recorded name; raises `FormatError` for an unknown one."""
    if name not in DIALECTS:
        raise FormatError(f"a request in the dialect {name!r}, which this release does not speak")
    return get_dialect(name)


def parse_any_message(
    body: Mapping[str, Any], *, own: Dialect, saw: int | None, asked: int | None
) -> list[Event]:
    """Parse a message or an answer in any dialect; if several fit, in `own`."""
    if own.is_answer(body):
        return own.parse_answer(body, saw, asked)
    if own.is_message(body) or _is_plain(body):
        return own.parse_message(body, saw)
    for dialect in list_dialects():
        if dialect.is_answer(body):
            return dialect.parse_answer(body, saw, asked)
    for dialect in list_dialects():
        if dialect.is_message(body):
            return dialect.parse_message(body, saw)
    return own.parse_message(body, saw)


def find_turn_dialect(body: Mapping[str, Any]) -> Dialect | None:
    """Return the dialect in which a message is one item of a model's turn, or None."""
    if "type" not in body:
        return None
    raw = msgspec.json.encode(body)
    meant = next((dialect for dialect in list_dialects() if dialect.is_message(body)), None)
    is_item = meant.is_model_item if meant else None
    return meant if is_item is not None and is_item(raw) else None


def find_stream_dialect(body: Mapping[str, Any]) -> Dialect | None:
    """Return the dialect that streams such an event, or None."""
    is_chunk = str(body.get("object")).endswith(".chunk")
    if not is_chunk and "type" not in body and "event_type" not in body:
        return None  # without importing any dialect
    return next((dialect for dialect in list_dialects() if dialect.is_stream_event(body)), None)


def parse_any_tools(given: Mapping[str, Any], *, own: Dialect | None = None) -> list[Tool]:
    """Parse a tool in any dialect; if several fit, in `own`. One dict may declare several."""
    if own is not None and (own.takes_tool or own.is_tool)(given):
        return own.parse_tools(given)
    for name in DIALECTS:
        if get_dialect(name).is_tool(given):
            return get_dialect(name).parse_tools(given)
    return get_dialect(ANTHROPIC).parse_tools(given)


def _is_plain(body: Mapping[str, Any]) -> bool:
    return body.keys() <= _PLAIN and isinstance(body.get("content"), str) and "role" in body
