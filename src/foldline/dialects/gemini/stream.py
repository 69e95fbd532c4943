"""Assembles an answer from the chunks of a stream; each chunk is an answer of its own."""

from foldline.dialects.gemini.content_parts import has_only_words, is_thought, rename_fields
from foldline.dialects.json_slices import Json, dict_of, list_of, parse_object
from foldline.errors import WireError


class GenerateContentAssembly:
    """An answer being streamed; give it each event's data.

    Parts come whole, but texts come in pieces: neighbours are joined if both were thought or both
    were said, and none is signed. A signed part is never joined with another.
    """

    def __init__(self) -> None:
        self.done = False
        """Whether the end was seen; an answer without it was cut."""
        self.fault: Json | None = None
        """The error that the stream ended with."""
        self.has_begun = False
        """Whether something was said or refused."""
        self._parts: list[Json] = []
        self._texts: list[list[str]] = []
        self._candidate: Json = {}
        self._body: Json = {}

    def add_event(self, data: str, *, whole: bool = True) -> None:
        """Add the next chunk; one that was cut off is ignored."""
        try:
            chunk = rename_fields(parse_object(data))
        except WireError:
            if whole:
                raise
            return
        if "error" in chunk:
            self.fault = chunk
            return
        candidates = [dict_of(one) for one in list_of(chunk.pop("candidates", None))]
        self._body |= chunk
        if dict_of(chunk.get("promptFeedback")).get("blockReason"):
            self.has_begun = self.done = True
        for candidate in candidates:
            if candidate.get("index"):
                continue  # of several answers the first is kept
            for part in list_of(dict_of(candidate.pop("content", None)).get("parts")):
                self._append_part(dict_of(part))
            self._candidate |= candidate
            self.done = self.done or bool(candidate.get("finishReason"))
            self.has_begun = self.has_begun or self.done

    def _append_part(self, part: Json) -> None:
        self.has_begun = True
        last = self._parts[-1] if self._parts else {}
        if has_only_words(part) and has_only_words(last) and is_thought(part) == is_thought(last):
            self._texts[-1].append(str(part["text"]))
            return
        self._parts.append(part)
        self._texts.append([str(part["text"])] if "text" in part else [])

    def build_body(self) -> Json:
        """Return the answer so far, as if it had not been streamed."""
        parts = [
            {**part, "text": "".join(texts)} if texts else part
            for part, texts in zip(self._parts, self._texts, strict=True)
        ]
        if not self.done:
            self._candidate["finishReason"] = "CUT"
        if not (parts or self._candidate):
            return self._body
        content: Json = {"role": "model", "parts": parts}
        return {"candidates": [{"content": content, **self._candidate}], **self._body}
