"""The registry of dialects: what each is, and which one a caller means.

A dialect is chosen by the caller's action: the path of a request, `open(dialect=…)`, the shape of
a message. A model's name decides only if nothing else does. A new dialect is a folder beside this
module, with a `dialect.py` that describes it, and one line in `DIALECTS`. Its modules are imported
when it is used.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, UsageReported
from foldline.core.parts import Tool
from foldline.core.request import Request
from foldline.core.view import View
from foldline.dialects.answers import Assembly, JoinedAnswer
from foldline.dialects.client_messages import (
    STATEFUL,
    Described,
    FoldMark,
    KeptState,
    append_value,
    is_blank_item,
    item_of,
    link_events,
    strip_native,
)
from foldline.dialects.json_slices import Json, dict_of
from foldline.dialects.model_names import is_relayed, names_claude, names_gemini
from foldline.errors import BadInput, FormatError

_SIGNING: Final = b"aws4-"  # AWS4-HMAC-SHA256, AWS4-ECDSA-P256-SHA256
_BODY_DIGESTS: Final = frozenset(
    (b"x-amz-content-sha256", b"content-digest", b"repr-digest", b"digest", b"content-md5")
)


class _Row(NamedTuple):
    """The facts of a dialect that are known before its import."""

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
    """The header that holds a key, and its prefix before the key."""
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
    """The facts in a request's path, in dialects whose bodies lack them."""

    model: str
    streams: bool


class Dialect(ABC):
    """How to write requests and read the messages of clients and servers.

    The defaults are those of a dialect without thinking, turns, state or compaction; a dialect
    overrides what differs. Whatever is read is bytes: the values of an SDK are encoded first.
    """

    name: ClassVar[str]
    vendor: ClassVar[Vendor]
    encoder: ClassVar[int]
    """Incremented when the same request would be written in other bytes."""
    bounds: ClassVar[tuple[str, ...]]
    """The parameters that limit the length of the answer; the first is written. A dot separates
    the name of an object and that of its field."""
    must_bound: ClassVar[bool] = False
    """Whether a request must limit its answer."""
    sdk_method: ClassVar[tuple[str, ...]]
    """The SDK's method that sends its requests: ("chat", "completions", "create")."""
    sdk_arguments: ClassVar[Mapping[str, Any]] = {}
    """Arguments on which that method insists, whatever body it is given."""
    stream_parameters: ClassVar[Mapping[str, Any]] = {}
    """Parameters without which a stream reports no usage."""
    messages: ClassVar[str] = "messages"
    """The field of a request that holds its messages."""
    fixed: ClassVar[tuple[str, str]] = ("system", "tools")
    """The fields that hold its system prompt and its tools."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of a request's fields, and the usual ones."""
    server_state: ClassVar[tuple[str, ...]] = STATEFUL
    """Fields that refer to state on the server: such a request is not the whole history."""
    chain_field: ClassVar[str] = ""
    """The field by which a request names an earlier answer, and its server adds that history."""
    results_in: ClassVar[str] = ""
    """The field of a message with all results of an answer; "" if each is a message."""
    orders_results: ClassVar[bool] = False
    """Whether results are in the order of their calls."""
    has_turns: ClassVar[bool] = False
    """Whether a message of the model may be several items of the list."""
    names_in_path: ClassVar[bool] = False
    """Whether a request's path names the model, and not its body."""
    least_thinking: ClassVar[int] = 0
    """Tokens: the provider takes no smaller budget of thinking."""
    allows_prefill: ClassVar[bool] = False
    """Whether the model continues an answer that the client has begun."""

    # Requests that we write

    @abstractmethod
    def encode_request(self, request: Request, parameters: Mapping[str, Any]) -> bytes:
        """Encode a request; the SDK's keyword arguments are decoded from these bytes."""

    @abstractmethod
    def encode_blocks(self, request: Request) -> list[bytes]:
        """Encode the content of a request, piece by piece, without cache marks."""

    def is_silent(self, request: Request) -> bool:
        """Whether a request would have no messages; a system prompt is none."""
        return all(is_blank_item(item, self.name) for item in request.items)

    @abstractmethod
    def list_faults(self, body: Mapping[str, Any]) -> list[str]:
        """List the faults of a request's body that its provider refuses, each by its rule."""

    def refuses_end(self, view: View, parameters: Mapping[str, Any]) -> bool:
        """Whether the provider refuses a request that ends as this view does.

        This is the rule of the end of a request: a session adds words of its own where it holds.
        """
        return False

    def thinks_manually(self, parameters: Mapping[str, Any]) -> bool:
        """Whether a request asks for thinking that must stay in its tool loop."""
        return False

    def change_thoughtless(
        self,
        parameters: Mapping[str, Any],
        messages: Sequence[Mapping[str, Any]],
    ) -> Json:
        """Return the fields to change where such a loop begins without its thinking."""
        return {}

    def fit_parameters(self, request: Request, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Leave out parameters that the provider refuses beside the request's messages."""
        return parameters

    def write_question(self, text: str) -> Json:
        """Write a user's message of one text."""
        return {"role": "user", "content": text}

    def write_count(self, tokens: int) -> Json | None:
        """Write the answer to a request that was posted to be counted; None if none are."""
        return None

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
                found = _decode(dict_of(found).get(inner))
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
            bound = kept.pop(head, None)
            if inner and isinstance(bound, Mapping):
                fields = cast("Mapping[str, Any]", bound)
                kept[head] = {key: value for key, value in fields.items() if key != inner}
        return self.lower_bound(kept, self.bounds[0], most)

    def read_path(self, path: str, query: str) -> PathFacts | None:
        """Return the facts in a request's path; None where its body has all."""
        return None

    # What an SDK gives

    @abstractmethod
    def parse_message(self, given: Mapping[str, Any], saw: int | None) -> list[Event]:
        """Parse a message; `saw` is the last event that a model's message saw."""

    def parse_turn(self, given: Sequence[Mapping[str, Any]], saw: int | None) -> list[Event]:
        """Parse the items of one turn of the model."""
        return [event for one in given for event in self.parse_message(one, saw)]

    @abstractmethod
    def parse_answer(
        self, given: Mapping[str, Any], saw: int | None, asked: int | None
    ) -> list[Event]:
        """Parse a whole answer: the last event it saw, and where its request was recorded."""

    @abstractmethod
    def parse_tools(self, given: Mapping[str, Any]) -> list[Tool]:
        """Parse a tool; in some dialects one dict declares several."""

    @abstractmethod
    def parse_usage(self, body: Json) -> UsageReported | None:
        """Parse the usage in an answer's body, also of an incomplete one; None if there is none."""

    @abstractmethod
    def is_answer(self, body: Mapping[str, Any]) -> bool:
        """Whether only this dialect writes an answer so."""

    @abstractmethod
    def is_message(self, body: Mapping[str, Any]) -> bool:
        """Whether only this dialect writes a message so."""

    @abstractmethod
    def is_tool(self, tool: Mapping[str, Any]) -> bool:
        """Whether only this dialect writes a tool so."""

    def accepts_tool(self, tool: Mapping[str, Any]) -> bool:
        """Whether it writes a tool so, as another dialect may do too."""
        return self.is_tool(tool)

    # Answers as they come

    @abstractmethod
    def make_assembly(self) -> Assembly:
        """Make the assembly of a streamed answer."""

    @abstractmethod
    def join_answers(self, is_ours: Callable[[str], bool]) -> JoinedAnswer:
        """Join answers to one for a client; `is_ours` says whether a tool of this name is ours."""

    def is_stream_event(self, body: Mapping[str, Any]) -> bool:
        """Whether only this dialect streams such an event."""
        return False

    @abstractmethod
    def read_delta(self, body: Json) -> str:
        """Return the text that one event of a stream adds."""

    @abstractmethod
    def read_thought(self, body: Json) -> str:
        """Return the reasoning that an event of a stream adds, as far as the provider shows it."""

    # Messages of clients

    @abstractmethod
    def describe_message(self, raw: bytes) -> Described:
        """Return a message's role and digest; raises `WireError` if it is not a message."""

    @abstractmethod
    def read_message(self, raw: bytes, described: Described) -> list[Event]:
        """Read a message as events; keep its JSON only where ours would mean something else."""

    def link_message(self, events: Sequence[Event], described: Described) -> list[Event]:
        """Link a message's events, without its JSON where ours would mean the same."""
        plain = [*map(strip_native, events)]
        written = self.write_message([*map(item_of, plain)])
        same = self.describe_message(written or b"{}").digest == described.digest
        return link_events(plain if same else events, described.digest)

    @abstractmethod
    def read_instructions(
        self, fields: Mapping[str, bytes], leading: Sequence[bytes]
    ) -> Instructed:
        """Read the instructions and tools of a request, and the system messages before others."""

    @abstractmethod
    def read_words(self, raw: bytes) -> str:
        """Return the texts of a message."""

    def is_results(self, raw: bytes) -> bool:
        """Whether a user's message begins with results: the user has not spoken since the calls."""
        return False

    def is_model_item(self, raw: bytes) -> bool:
        """Whether an item belongs to the model's turn, with those next to it."""
        return False

    def is_content(self, raw: bytes) -> bool:
        """Whether an item is only a content, where a list of these is one message."""
        return False

    @abstractmethod
    def encode_answer(self, body: Mapping[str, Any]) -> list[bytes]:
        """Encode an answer as the messages that a client sends back."""

    def complete_answer(self, body: Json, prefill: bytes) -> Json:
        """Join an answer with the text that the client began it with."""
        return body

    @abstractmethod
    def write_message(self, items: Sequence[Item]) -> bytes:
        """Write the items of a message, as they came if they were kept so."""

    @abstractmethod
    def write_handoff(self, items: Sequence[Item], mark: bytes) -> bytes:
        """Write a handoff as messages, with the cache mark of what it replaces."""

    @abstractmethod
    def write_tool(self, tool: Tool) -> bytes:
        """Write a tool from its neutral form."""

    @abstractmethod
    def replace_text(self, raw: bytes, event: Event, item: Item) -> bytes:
        """Show an item's text in place of one of the message's events."""

    @abstractmethod
    def add_words(self, raw: bytes, words: str) -> bytes:
        """Add words at the end of a user's message or a result, behind the cached part."""

    def add_tool(self, tools: bytes, tool: Tool) -> bytes | None:
        """Add a tool to those of a request, b"" if it has none; None if the list takes none."""
        return append_value(tools, self.write_tool(tool))

    def fit_results(self, results: bytes, answer: bytes) -> bytes:
        """Give written results the ids of an answer's calls, where our own ids for these differ."""
        return results

    def drop_thinking(self, raw: bytes) -> bytes:
        """Remove a message's signed thinking, where the provider binds it to the words before."""
        return raw

    def carry_state(
        self,
        run: Sequence[bytes],
        stays: Collection[int],
        tools: bytes,
        *,
        thinks: bool,
    ) -> KeptState:
        """Write the state in a folded run of messages that later requests depend on.

        `stays` are the indexes of the messages that have any, none of them opaque; `tools` are the
        tools of the request. `thinks` says that written calls must keep their thinking.
        """
        return KeptState()

    # Histories that a client names in place of sending them

    def write_mark(self, mark: FoldMark) -> bytes:
        """Write the item that a client sends in place of a history."""
        raise NotImplementedError(f"{self.name} has no such items: {mark}")

    def write_instructions(self, event: Instructed) -> list[bytes]:
        """Write instructions that were among the messages."""
        return []

    def write_listed(self, raw: bytes) -> bytes:
        """Write a message as an element of a list; it may have been the whole input."""
        return raw

    def remove_trigger(self, body: bytes) -> bytes | None:
        """Remove from a request what asks to compact its history; None if it does not ask."""
        return None

    def find_threshold(self, parameters: Mapping[str, Any]) -> int | None:
        """Return the tokens from which on a request asks to be compacted on its way, if any."""
        return None

    def write_compaction(
        self, body: bytes, mark: FoldMark, *, name: str, created: int, posted: bool
    ) -> tuple[str, bytes]:
        """Write the content type and the body of an answer that names a fold.

        `posted` says whether the history was posted to a path that only compacts.
        """
        raise NotImplementedError(f"{self.name} has no compactions: {mark}")


def _decode(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


@cache
def get_dialect(name: str) -> Dialect:
    """Return a dialect by its name in `DIALECTS`."""
    return import_module(f"foldline.dialects.{DIALECTS[name].folder}.dialect").DIALECT


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


def is_signed(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether headers sign the body, so that the request is refused if it changes.

    Bedrock's clients sign every request. The signatures themselves are not checked here.
    """
    for raw, value in headers:
        name = raw.lower()
        if name in _BODY_DIGESTS:
            return True
        if name == b"authorization" and value.strip().lower().startswith(_SIGNING):
            return True
    return False


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
    return meant if meant is not None and meant.is_model_item(raw) else None


def find_stream_dialect(body: Mapping[str, Any]) -> Dialect | None:
    """Return the dialect that streams such an event, or None."""
    is_chunk = str(body.get("object")).endswith(".chunk")
    if not is_chunk and "type" not in body and "event_type" not in body:
        return None  # without importing any dialect
    return next((dialect for dialect in list_dialects() if dialect.is_stream_event(body)), None)


def parse_any_tools(given: Mapping[str, Any], *, own: Dialect | None = None) -> list[Tool]:
    """Parse a tool in any dialect; if several fit, in `own`. One dict may declare several."""
    if own is not None and own.accepts_tool(given):
        return own.parse_tools(given)
    for name in DIALECTS:
        if get_dialect(name).is_tool(given):
            return get_dialect(name).parse_tools(given)
    return get_dialect(ANTHROPIC).parse_tools(given)


def _is_plain(body: Mapping[str, Any]) -> bool:
    return body.keys() <= _PLAIN and isinstance(body.get("content"), str) and "role" in body
