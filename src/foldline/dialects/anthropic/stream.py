"""Assembles a streamed answer into the body of one that was not, and joins several to one."""

from collections.abc import Mapping
from typing import Any, ClassVar

from foldline.dialects.answers import Assembly, JoinedAnswer, Split
from foldline.dialects.json_slices import Json, decode_object, dict_of, list_of
from foldline.errors import WireError

_MOST_BLOCKS = 10_000


class MessagesAssembly(Assembly):
    """An answer being streamed."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = True  # every event of this dialect says something
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}
        self._whole: set[int] = set()

    def _apply_event(self, event: Json) -> None:
        match event.get("type"):
            case "message_start":
                self._message = dict_of(event.get("message"))
                self._usage = dict(dict_of(self._message.get("usage")))
            case "content_block_start":
                self._blocks[self._parse_index(event)] = dict(dict_of(event.get("content_block")))
            case "content_block_delta":
                self._apply_delta(self._parse_index(event), dict_of(event.get("delta")))
            case "content_block_stop":
                self._whole.add(self._parse_index(event))
            case "message_delta":
                self._message |= dict_of(event.get("delta"))
                self._usage |= dict_of(event.get("usage"))
            case "message_stop":
                self._ended = True
            case "error":
                self.fault = dict_of(event.get("error")) or event
            case _:
                pass

    def build_body(self) -> Json:
        """Return the answer so far; of a cut stream, only whole blocks and texts."""
        content = [self._build_block(index) for index in sorted(self._blocks)]
        stop: Json = {} if self.done else {"stop_reason": "cut"}
        usage: Json = {"usage": self._usage} if self._usage else {}
        kept = [block for block in content if block is not None]
        return (
            {"type": "message", "role": "assistant"}
            | self._message
            | {"content": kept}
            | stop
            | usage
        )

    def _parse_index(self, event: Json) -> int:
        index = event.get("index")
        if not isinstance(index, int) or not 0 <= index < _MOST_BLOCKS:
            raise WireError(f"a block at {index!r} in a stream", path="$.index")
        return index

    def _apply_delta(self, index: int, delta: Json) -> None:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        match delta.get("type"):
            case "text_delta":
                self._add_text(index, "text", delta.get("text"))
            case "thinking_delta":
                self._add_text(index, "thinking", delta.get("thinking"))
            case "input_json_delta":
                self._add_text(index, "input", delta.get("partial_json"))
            case "signature_delta":
                block["signature"] = delta.get("signature")
            case "citations_delta":
                block["citations"] = [*list_of(block.get("citations")), delta.get("citation")]
            case _:
                pass

    def _add_text(self, index: int, name: str, text: Any) -> None:
        if isinstance(text, str):
            self._texts.setdefault((index, name), []).append(text)

    def _build_block(self, index: int) -> Json | None:
        block = dict(self._blocks[index])
        cut = index not in self._whole and not self.done
        for name in ("text", "thinking"):
            if (index, name) in self._texts:
                block[name] = str(block.get(name) or "") + "".join(self._texts[index, name])
        if (index, "input") in self._texts:
            arguments = decode_object("".join(self._texts[index, "input"]))
            if arguments is None:
                return None  # a call whose arguments were cut must never run
            block["input"] = arguments
        if cut and block.get("type") != "text":
            return None
        return block


_COUNTS = (
    *("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    *("cache_creation", "output_tokens"),
)
_CALL = "tool_use"


class JoinedMessages(JoinedAnswer):
    """Messages, one after the other, as one: their blocks follow each other."""

    ids = ("id",)
    outputs = ("output_tokens", "output_tokens_details", "server_tool_use")
    stops: ClassVar[Mapping[str, str]] = {_CALL: "end_turn"}

    def _split_event(self, event: Json) -> Split:
        match event.get("type"):
            case "message_start":
                self._usage = dict_of(dict_of(event.get("message")).get("usage"))
                return ([event] if self._is_first else []), []
            case "content_block_start":
                ours = self._is_our_block(event.get("content_block"))
                self._places.mark(event.get("index"), ours=ours)
            case "message_delta":
                return [], [self._convert_end(event)]
            case "message_stop":
                return [], [event]
            case _:
                pass
        shown = self._places.renumber(event, "index")
        return ([] if shown is None else [shown]), []

    def _is_our_block(self, block: Any) -> bool:
        found = dict_of(block)
        return found.get("type") == _CALL and self._note_call(found.get("name"))

    def _convert_end(self, event: Json) -> Json:
        """Show the last answer's input, which its own beginning may report, and all output."""
        given = dict_of(event.get("usage"))
        counted = {name: count for name, count in given.items() if count is not None}
        self._usage = self._usage | counted
        if not self._is_first:
            counts = {name: self._usage[name] for name in _COUNTS if name in self._usage}
            event = {**event, "usage": self._add_spent(counts | counted)}
        delta = dict_of(event.get("delta"))
        stop = {"stop_reason": self._convert_stop(delta.get("stop_reason"))}
        return {**event, "delta": {**delta, **stop}} if "stop_reason" in delta else event

    def _join_body(self, joined: Json, body: Json) -> Json:
        shown = [block for block in list_of(body.get("content")) if not self._is_our_block(block)]
        said: Json = {
            "content": [*list_of(joined.get("content")), *shown],
            "stop_reason": self._convert_stop(body.get("stop_reason")),
        }
        merged = self._join_usage(self._keep_ids(body))
        return {**joined, **merged, **{name: said[name] for name in said if name in body}}
