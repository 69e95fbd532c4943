"""A streamed answer, put together event by event.

Knows the events of a stream and what is left of one that was cut. Refuses to know bytes and lines:
those are `dialects.sse`'s.

The result is the answer as a server that does not stream would have given it: `answer` reads both.
"""

from typing import Any, cast

import msgspec

from foldline.dialects.json_reader import Json, parse
from foldline.errors import WireError

_MOST_BLOCKS = 10_000


class Assembly:
    """One answer on its way; give it each event's data."""

    def __init__(self) -> None:
        self.done = False
        """Whether the end was seen: an answer without it was cut."""
        self.fault: Json | None = None
        """The error that the stream ended with."""
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}
        self._whole: set[int] = set()

    def take(self, data: str, *, whole: bool = True) -> None:
        """The next event; what is unknown is passed by, and so is what was cut off."""
        try:
            event = parse(data)
        except WireError:
            if whole:
                raise
            return
        match event.get("type"):
            case "message_start":
                self._message = _object(event, "message")
                self._usage = dict(_object(self._message, "usage"))
            case "content_block_start":
                self._blocks[self._index(event)] = dict(_object(event, "content_block"))
            case "content_block_delta":
                self._delta(self._index(event), _object(event, "delta"))
            case "content_block_stop":
                self._whole.add(self._index(event))
            case "message_delta":
                self._message |= _object(event, "delta")
                self._usage |= _object(event, "usage")
            case "message_stop":
                self.done = True
            case "error":
                self.fault = _object(event, "error") or event
            case _:
                pass

    def body(self) -> Json:
        """The answer so far; of a stream that was cut, only what is whole, and words."""
        content = [self._block(index) for index in sorted(self._blocks)]
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

    def _index(self, event: Json) -> int:
        index = event.get("index")
        if not isinstance(index, int) or not 0 <= index < _MOST_BLOCKS:
            raise WireError(f"a block at {index!r} in a stream", path="$.index")
        return index

    def _delta(self, index: int, delta: Json) -> None:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        match delta.get("type"):
            case "text_delta":
                self._add(index, "text", delta.get("text"))
            case "thinking_delta":
                self._add(index, "thinking", delta.get("thinking"))
            case "input_json_delta":
                self._add(index, "input", delta.get("partial_json"))
            case "signature_delta":
                block["signature"] = delta.get("signature")
            case "citations_delta":
                known = block.get("citations")
                block["citations"] = [
                    *(cast("list[Any]", known) if isinstance(known, list) else []),
                    delta.get("citation"),
                ]
            case _:
                pass

    def _add(self, index: int, name: str, text: Any) -> None:
        if isinstance(text, str):
            self._texts.setdefault((index, name), []).append(text)

    def _block(self, index: int) -> Json | None:
        block = dict(self._blocks[index])
        cut = index not in self._whole and not self.done
        for name in ("text", "thinking"):
            if (index, name) in self._texts:
                block[name] = str(block.get(name) or "") + "".join(self._texts[index, name])
        if (index, "input") in self._texts:
            given = _decoded("".join(self._texts[index, "input"]))
            if given is None:
                return None  # arguments that were cut must never be run
            block["input"] = given
        if cut and block.get("type") != "text":
            return None
        return block


def _object(event: Json, name: str) -> Json:
    found = event.get(name)
    return cast("Json", found) if isinstance(found, dict) else {}


def _decoded(text: str) -> Json | None:
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return cast("Json", found) if isinstance(found, dict) else None
