"""Assembles an answer from the chunks of a stream, and joins several to one.

Each chunk is an answer of its own.
"""

from collections.abc import Callable

from foldline.dialects.answers import Assembly, JoinedAnswer, Split, find_kept
from foldline.dialects.gemini.content_parts import (
    SIGNATURE,
    has_only_words,
    is_thought,
    parts_of,
    rename_fields,
)
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.dialects.sse import SseEvent


class GenerateContentAssembly(Assembly):
    """An answer being streamed.

    Parts come whole, but texts come in pieces: neighbours are joined if both were thought or both
    were said, and none is signed. A signed part is never joined with another.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Json] = []
        self._texts: list[list[str]] = []
        self._candidate: Json = {}
        self._body: Json = {}

    def _apply_event(self, event: Json) -> None:
        chunk = rename_fields(event)
        if "error" in chunk:
            self.fault = chunk
            return
        candidates = [dict_of(one) for one in list_of(chunk.pop("candidates", None))]
        self._body |= chunk
        if dict_of(chunk.get("promptFeedback")).get("blockReason"):
            self._begun = self._ended = True
        for candidate in candidates:
            if candidate.get("index"):
                continue  # of several answers the first is kept
            for part in list_of(dict_of(candidate.pop("content", None)).get("parts")):
                self._append_part(dict_of(part))
            self._candidate |= candidate
            self._ended = self._ended or bool(candidate.get("finishReason"))
            self._begun = self._begun or self._ended

    def _append_part(self, part: Json) -> None:
        self._begun = True
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


class JoinedContents(JoinedAnswer):
    """Answers, one after the other, as one: their parts follow each other."""

    ids = ("responseId", "createTime")
    usage = "usageMetadata"
    outputs = ("candidatesTokenCount", "thoughtsTokenCount")
    total = "totalTokenCount"

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        super().__init__(is_ours)
        self._name = ""  # of the newest call
        self._signature = ""  # of our first call

    def end_answer(self, *, last: bool) -> list[SseEvent]:
        """End the answer under way; the next has signatures of its own."""
        self._name = self._signature = ""
        return super().end_answer(last=last)

    def _split_event(self, event: Json) -> Split:
        given = rename_fields(event)
        chunk = self._join_usage(self._keep_ids(given))
        candidates = list_of(chunk.get("candidates"))
        place = find_kept(candidates)
        if place is None:
            return [event if chunk == given else chunk], []
        candidate = dict_of(candidates[place])
        content = dict_of(candidate.get("content"))
        parts = parts_of(content)
        shown = [part for one in parts if (part := self._convert_part(one)) is not None]

        def write(changed: Json) -> Json:
            others = (candidates[:place], candidates[place + 1 :])
            written = {**chunk, "candidates": [*others[0], changed, *others[1]]}
            return event if written == given else written

        said = (
            candidate if shown == parts else {**candidate, "content": {**content, "parts": shown}}
        )
        if not candidate.get("finishReason"):
            return ([write(said)] if shown or not parts else []), []
        if not self._has_ours:  # no other answer follows
            return [], [write(said)]
        said = {name: said[name] for name in ("content", "index") if name in said}
        silent = {name: value for name, value in content.items() if name != "parts"}
        return ([write(said)] if shown else []), [write({**candidate, "content": silent})]

    def _convert_part(self, part: Json) -> Json | None:
        """Return a part as the client gets it; None if it is our call.

        Google wants the first call of an answer to be signed: if it was ours, its signature goes
        to the client's first.
        """
        if "functionCall" in part:
            is_first = False not in self._calls
            self._name = str(dict_of(part["functionCall"]).get("name") or self._name)
            if self._note_call(self._name):
                self._signature = self._signature or str(part.get(SIGNATURE) or "")
                return None
            must_sign = is_first and self._signature and not part.get(SIGNATURE)
            return {**part, SIGNATURE: self._signature} if must_sign else part
        if "text" not in part or is_thought(part):
            return part
        return {**part, "text": self._text.add_piece(part["text"])}

    def _join_body(self, joined: Json, body: Json) -> Json:
        passed, ends = self._split_event(body)
        for chunk in (*passed, *ends):
            joined = _append_chunk(joined, chunk) if joined else chunk
        return joined


def _append_chunk(joined: Json, chunk: Json) -> Json:
    before, more = (
        dict_of(next(iter(list_of(one.get("candidates"))), None)) for one in (joined, chunk)
    )
    contents = [dict_of(one.get("content")) for one in (before, more)]
    parts = [part for content in contents for part in parts_of(content)]
    content = {**contents[0], **contents[1], "parts": parts}
    return {**joined, **chunk, "candidates": [{**before, **more, "content": content}]}
