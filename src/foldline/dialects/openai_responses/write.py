"""Encodes requests as bytes.

An answer that came in this dialect is written as it came, in all its items. Its `encrypted_content`
is not in the kept JSON, where it would be counted as words: there it is "", and it is put back from
the n-th thought for the n-th reasoning or compaction item. The bytes of a picture that the provider
made are put back from its media part in the same way.

Where an answer cannot be written as it came, it is lowered: reasoning is left out, and so are the
ids of the items that followed it, because the provider refuses one without the other. That is so if
a thought was left out of the view, if an id occurs twice, or if a call of the provider's own kind
lost an output that words cannot replace, such as a screenshot. Such a call is then written as a
function call.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import msgspec

from foldline.core.item import Item
from foldline.core.parts import Call, Media, Native, Part, Text, Thought, Tool, calls_of, text_of
from foldline.core.request import Request
from foldline.dialects import tools as kinds
from foldline.dialects.json_slices import Json, list_of, object_of
from foldline.dialects.openai import (
    ADDRESSES,
    LONGEST_NAME,
    is_picture_address,
    iterate_groups,
    render_parts,
    shorten_id,
)
from foldline.dialects.openai_responses.items import (
    APPROVAL,
    PLAIN_OUTPUTS,
    SEALED,
    call_id_field,
    call_id_of,
    is_awaited,
    item_id_of,
    kind_of,
    output_type_of,
    parse_model_item,
    parse_output,
    type_of,
)
from foldline.dialects.openai_responses.validate import LONGEST_ID
from foldline.dialects.tools import Names, append_digest, select_tools
from foldline.errors import WireError

DIALECT = "openai-responses"
ENCODER = 1
"""Incremented when the same request would be written in other bytes."""
_ANY = Names({}, LONGEST_NAME)
_EMPTY = b'""'  # where an opaque text was, in kept JSON
_FUNCTION, _CUSTOM = "function_call", "custom_tool_call"
_PEEKED = ("type", "role", "id", "call_id", "approval_request_id", "execution")
_TIES = ("id", "caller", "status")
"""The fields that tie a call to the answer it came in."""
_PICTURE = "image_generation_call"
_WORDY = ("shell_call_output", "apply_patch_call_output", "local_shell_call_output")
"""Outputs of the provider's own kinds that can be written from words alone."""
_REBUILT = {"shell_call": ("action", "commands"), "apply_patch_call": ("operation", "path")}
"""Calls of its own kinds that can be written from a neutral call: the field, and a key in it."""
_STEM = 47  # characters of a shortened id before its digest
_FILES = {"application/pdf": "file.pdf"}

Fields: TypeAlias = dict[str, msgspec.Raw]
"""An item whose values stay as they came."""


@dataclass(frozen=True, slots=True)
class CallGroup:
    """How the calls of one answer, and their results, are written."""

    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """The id shown → the id written."""
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The id shown → the type of the output, where it is not a function's."""
    names: Names = _ANY


def encode_request(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """Encode a request; the SDK's keyword arguments are decoded from these bytes.

    The input comes last, so that a request that only grew begins with the bytes of the one before.
    """
    body: Json = {"model": request.model, **parameters}
    system = render_parts(request.system)
    if system.strip() and not _list_own_natives(request):
        body["instructions"] = system
    tools, names = select_tools(request.tools, dialect=DIALECT, longest=LONGEST_NAME)
    declared = _list_declared_tools(request)
    written = [_write_tool_as_it_came(tool, names) for tool in tools]
    if written := [tool for tool in written if not declared or decode(tool) not in declared]:
        body["tools"] = written
    body["input"] = [msgspec.Raw(block) for block in encode_blocks(request)]
    return msgspec.json.encode(body)


def encode_blocks(request: Request) -> list[bytes]:
    """Encode the items of a request's input, each in its own bytes."""
    *_, draft = _grow_draft(request)
    last = len(draft.items) - 1
    return [
        msgspec.json.encode(item)
        for place, item in enumerate(draft.items)
        if place == last or not _is_trigger(item)
    ]


def is_silent(request: Request) -> bool:
    """Whether a request has no input, though it may have instructions; stops at the first item."""
    return not any(draft.items for draft in _grow_draft(request))


def decode_native(native: Native | None) -> list[Fields] | None:
    """Decode the items that were kept; None if there are none of this dialect."""
    if native is None or native.dialect != DIALECT:
        return None
    try:
        return msgspec.json.decode(native.body, type=list[Fields])
    except msgspec.DecodeError:
        return None


def write_items(item: Item, group: CallGroup | None = None) -> list[Json]:
    """Write an item as input items from its neutral form; none if it says nothing."""
    match item.role:
        case "system":
            return _write_message("developer", text_of(item.parts))
        case "handoff" if item.in_system:
            return _write_message("developer", text_of(item.parts))
        case "user" | "handoff":
            return _write_message("user", _encode_content(item.parts))
        case "result":
            return [_write_result(item, group or CallGroup())]
        case "model":
            return [*_write_answer(item.parts, group or CallGroup())]


def write_tool(tool: Tool, names: Names = _ANY) -> Json:
    """Write a tool from its neutral form; parameters that are not an object are dropped.

    A function is strict unless it says otherwise, and most schemas are not written for that.
    """
    body: Json = {"type": "function", "name": names.resolve_name(tool.name)}
    if tool.description:
        body["description"] = tool.description
    body["parameters"] = msgspec.Raw(tool.schema.encode())
    if object_of(tool.schema) is None:
        body["parameters"] = {"type": "object", "properties": {}}
    return {**body, "strict": False}


def own_id(call_id: str, *, taken: Iterable[str] = ()) -> str:
    """Return a valid call id: one that is too long is shortened, always in the same way."""
    return shorten_id(call_id, LONGEST_ID, stem=_STEM, taken=taken)


def _grow_draft(request: Request) -> Iterator["_InputDraft"]:
    """Yield the draft of a request's input at its start, and again with each group added."""
    draft = _InputDraft(request)
    for native in _list_own_natives(request):
        draft.add_input_items(decode_native(native) or [])
    yield draft
    for head, results in iterate_groups(request.items):
        draft.add_group(head, results)
        yield draft


class _InputDraft:
    """The input items of one request, with the ids that are taken."""

    def __init__(self, request: Request) -> None:
        self.items: list[Mapping[str, Any]] = []
        tools, self._names = select_tools(request.tools, dialect=DIALECT, longest=LONGEST_NAME)
        self._custom = {tool.name for tool in tools if _is_custom(tool)}
        self._call_ids: set[str] = set()
        self._item_ids: set[str] = set()

    def add_group(self, head: Item, results: Sequence[Item]) -> None:
        """Add an item and the results after it."""
        group = CallGroup(names=self._names)
        own = decode_native(head.native)
        if head.role == "model":
            group = self._add_answer(head, own, results)
        elif head.role == "result":  # without a call in sight
            results = (head, *results)
        elif own is not None:
            self.add_input_items(own)
        else:
            self.items += write_items(head, group)
        for item in results:
            self._add_result(item, group)

    def add_input_items(self, items: Iterable[Fields]) -> None:
        """Add items as they came; an id that another item has is left out."""
        for item in items:
            own = item_id_of(_peek_at(item))
            kept = item
            if own and own in self._item_ids:
                kept = {key: value for key, value in item.items() if key != "id"}
            self._item_ids.add(own)
            self.items.append(kept)

    def _add_result(self, item: Item, group: CallGroup) -> None:
        own = decode_native(item.native)
        expected = group.outputs.get(item.call_id, PLAIN_OUTPUTS[_FUNCTION])
        if own is None or _find_output_type(own) != expected:
            self.items += write_items(item, group)
            return
        ids = {item.call_id: group.ids.get(item.call_id) or own_id(item.call_id)}
        self.add_input_items(_replace_call_id(one, ids) for one in own)

    def _add_answer(
        self, head: Item, own: list[Fields] | None, results: Sequence[Item]
    ) -> CallGroup:
        """Add an answer, as it came if it can be."""
        seen = [_peek_at(one) for one in own or ()]
        called = [call.id for call in calls_of(head.parts)]
        called += [call_id_of(one) for one in seen if is_awaited(one)]
        ids = self._assign_call_ids(head.seq, called)
        answered = {
            item.call_id: _find_output_type(came)
            for item in results
            if (came := decode_native(item.native)) is not None
        }
        restored = restore_sealed(own, head.parts) if own is not None else None
        if restored is not None and not self._must_lower(seen, ids, answered):
            self._item_ids.update(filter(None, map(item_id_of, seen)))
            self.items += (_replace_call_id(one, ids) for one in restored)
            calls = (one for one in seen if is_awaited(one))
            made = {call_id_of(one): output_type_of(type_of(one)) for one in calls}
            return CallGroup(ids, made, self._names)
        came_custom = {call_id_of(one) for one in seen if type_of(one) == _CUSTOM}
        custom = PLAIN_OUTPUTS[_CUSTOM]
        made: dict[str, str] = {}
        for call in calls_of(head.parts):
            guess = custom if call.name in self._custom else ""
            if call.id in came_custom or answered.get(call.id, guess) == custom:
                made[call.id] = custom
            elif own is None and (kind := _find_own_output(call)) and answered.get(call.id) == kind:
                made[call.id] = kind
        group = CallGroup(ids, made, self._names)
        try:
            came = restored or own
            lowered = [*_lower_items(came, group)] if came else write_items(head, group)
        except WireError:  # other programs' logs may hold items that we cannot read
            lowered = write_items(head, group)
        self.items += lowered
        return group

    def _assign_call_ids(self, seq: int, given: Iterable[str]) -> dict[str, str]:
        """Map the call ids of an answer to valid ones, each unique in the request."""
        ids: dict[str, str] = {}
        for came in given:
            if not came or came in ids:
                continue
            own = own_id(came, taken=self._call_ids)
            if own in self._call_ids:
                own = append_digest(came[:_STEM], f"{came} {seq}", digits=16, taken=self._call_ids)
            self._call_ids.add(own)
            ids[came] = own
        return ids

    def _must_lower(
        self, seen: Sequence[Json], ids: Mapping[str, str], answered: Mapping[str, str]
    ) -> bool:
        """Whether the items of an answer cannot be sent as they came."""
        own = [one for one in map(item_id_of, seen) if one]
        if len({*own}) < len(own) or not self._item_ids.isdisjoint(own):
            return True
        inside = {call_id_of(one) for one in seen if kind_of(one) == "result"}
        for one in seen:
            call_id = call_id_of(one)
            if not is_awaited(one) or type_of(one) in PLAIN_OUTPUTS or call_id in inside:
                continue
            output = output_type_of(type_of(one))
            if answered.get(call_id) != output and output not in _WORDY:
                return True
            if type_of(one) == APPROVAL and ids[call_id] != call_id:
                return True
        return False


def hide_sealed(items: Iterable[Json]) -> list[Json]:
    """Return a turn's items without the opaque texts that its thoughts and pictures hold."""
    found: list[Json] = []
    for item in items:
        key = _find_sealed_field(type_of(item))
        hides = key is not None and isinstance(item.get(key), str)
        found.append({**item, key: ""} if hides and key else item)
    return found


def restore_sealed(items: Sequence[Fields], parts: Sequence[Part]) -> list[Fields] | None:
    """Put back what `hide_sealed` took out; None if the parts no longer hold all of it.

    Other programs' logs keep items with their opaque texts: those stay as they are.
    """
    thoughts = [part.signature for part in parts if isinstance(part, Thought)]
    pictures = [part.base64 for part in parts if isinstance(part, Media)]
    names = [type_of(_peek_at(item)) for item in items]
    sealed = [item for item, name in zip(items, names, strict=True) if name in SEALED]
    made = [item for item, name in zip(items, names, strict=True) if name == _PICTURE]
    hidden = any(_is_hidden(item, "encrypted_content") for item in sealed)
    if len(thoughts) != len(sealed) and (hidden or len(thoughts) < names.count("reasoning")):
        return None
    drawn = [item for item in made if _is_hidden(item, "result")]
    if drawn and len(drawn) != len(pictures):
        return None
    texts = iter(thoughts) if hidden else iter(())
    bytes_of = iter(pictures)
    found: list[Fields] = []
    for item, name in zip(items, names, strict=True):
        text = None
        if name in SEALED:
            text = next(texts, None)
        elif name == _PICTURE and _is_hidden(item, "result"):
            text = next(bytes_of, None)
        key = _find_sealed_field(name)
        if text is not None and key and _is_hidden(item, key):
            found.append({**item, key: msgspec.Raw(msgspec.json.encode(text))})
        else:
            found.append(item)
    return found


def _find_sealed_field(name: str) -> str | None:
    if name in SEALED:
        return "encrypted_content"
    return "result" if name == _PICTURE else None


def _is_hidden(item: Fields, key: str) -> bool:
    return key in item and bytes(item[key]) == _EMPTY


def _lower_items(own: Iterable[Fields], group: CallGroup) -> Iterator[Json]:
    """Write an answer's items without reasoning, ids and the provider's own kinds of calls.

    A compaction item replaces all that was before it, so it stays if its text is there.
    """
    called: set[str] = set()
    for fields in own:
        item: Json = decode(fields)
        name, call_id = type_of(item), call_id_of(item)
        written = group.ids.get(call_id, call_id)
        called |= {call_id} if is_awaited(item) else set()
        is_paired = is_awaited(item) or (kind_of(item) == "result" and call_id in called)
        kept = {key: value for key, value in item.items() if key not in _TIES}
        if is_paired and (name in PLAIN_OUTPUTS or name in PLAIN_OUTPUTS.values()):
            yield {**kept, "call_id": written}
        elif is_paired and kind_of(item) == "result":
            words = text_of(parse_output(item))
            yield {"type": PLAIN_OUTPUTS[_FUNCTION], "call_id": written, "output": words}
        elif name == "compaction" and item.get("encrypted_content"):
            yield kept
        elif name not in SEALED:
            phase = {"phase": item["phase"]} if item.get("phase") else {}
            yield from ({**one, **phase} for one in _write_answer(parse_model_item(item), group))


def _write_message(role: str, content: str | list[Json]) -> list[Json]:
    said = content.strip() if isinstance(content, str) else content
    return [{"role": role, "content": content}] if said else []


def _write_answer(parts: Iterable[Part], group: CallGroup) -> Iterator[Json]:
    """Write words and calls in their order; thoughts go back only as they came."""
    said: list[Part] = []
    for part in parts:
        if isinstance(part, Call):
            yield from _write_message("assistant", render_parts(said))
            said = []
            yield _write_call(part, group)
        elif not isinstance(part, Thought):
            said.append(part)
    yield from _write_message("assistant", render_parts(said))


def _write_call(call: Call, group: CallGroup) -> Json:
    call_id = group.ids.get(call.id) or own_id(call.id)
    name = group.names.resolve_name(call.name)
    if group.outputs.get(call.id) == PLAIN_OUTPUTS[_CUSTOM]:
        return {"type": _CUSTOM, "call_id": call_id, "name": name, "input": call.arguments}
    if call.name in _REBUILT and call.id in group.outputs:
        said = {_REBUILT[call.name][0]: msgspec.Raw(call.arguments.encode())}
        return {"type": call.name, "call_id": call_id, **said, "status": "completed"}
    arguments = call.arguments or "{}"
    return {"type": _FUNCTION, "call_id": call_id, "name": name, "arguments": arguments}


def _find_own_output(call: Call) -> str:
    """Return the output's type of a call of the provider's own kind that can be written again."""
    needed = _REBUILT.get(call.name)
    said = object_of(call.arguments) if needed else None
    return output_type_of(call.name) if needed and said and needed[1] in said else ""


def _write_result(item: Item, group: CallGroup) -> Json:
    call_id = group.ids.get(item.call_id) or own_id(item.call_id)
    kind = group.outputs.get(item.call_id, PLAIN_OUTPUTS[_FUNCTION])
    parts, words = item.parts, render_parts(item.parts)
    match kind:
        case "shell_call_output":
            outcome = {"type": "exit", "exit_code": 0 if item.ok else 1}
            output = [{"stdout": words, "stderr": "", "outcome": outcome}]
            return {"type": kind, "call_id": call_id, "output": output}
        case "apply_patch_call_output":
            status = "completed" if item.ok else "failed"
            return {"type": kind, "call_id": call_id, "status": status, "output": words}
        case "local_shell_call_output":
            return {"type": kind, "id": call_id, "output": words}
        case _:
            pass
    if not item.ok and item.state == "whole" and not text_of(parts).lower().startswith("error"):
        first, rest = (parts[0], parts[1:]) if parts else (Text(""), ())
        words = f"Error: {text_of((first,))}" if not isinstance(first, Media) else "Error:"
        parts = (Text(words), *rest) if not isinstance(first, Media) else (Text(words), *parts)
    return {"type": kind, "call_id": call_id, "output": _encode_content(parts)}


def _encode_content(parts: tuple[Part, ...]) -> str | list[Json]:
    if not any(isinstance(part, Media) for part in parts):
        return text_of(parts)
    return [
        _encode_media(part)
        if isinstance(part, Media)
        else {"type": "input_text", "text": text_of((part,))}
        for part in parts
        if isinstance(part, Media) or text_of((part,)).strip()
    ]


def _encode_media(part: Media) -> Json:
    """Write images and files; name any other, and sound, which this dialect has no place for."""
    url = part.url or (f"data:{part.mime};base64,{part.base64}" if part.base64 else "")
    if part.form == "image" and is_picture_address(url):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if part.form == "file" and part.base64 and not part.url:
        name = part.name or _FILES.get(kinds.mime_of(part), "file")
        return {"type": "input_file", "filename": name, "file_data": url}
    if part.form == "file" and part.url.startswith(ADDRESSES[:2]):
        return {"type": "input_file", "file_url": part.url}
    if part.form == "audio":
        return {"type": "input_text", "text": kinds.describe_refused_media(part)}
    return {"type": "input_text", "text": kinds.describe_media(part)}


def _write_tool_as_it_came(tool: Tool, names: Names) -> msgspec.Raw:
    native = tool.native
    if native is not None and native.dialect == DIALECT:
        return msgspec.Raw(native.body.encode())
    return msgspec.Raw(msgspec.json.encode(write_tool(tool, names)))


def _list_declared_tools(request: Request) -> list[Any]:
    """List the tools that items of the input declare, which are not declared a second time."""
    natives = (*request.native, *(item.native for item in request.items if item.role == "system"))
    found: list[Any] = []
    for native in natives:
        if native is not None and "additional_tools" in native.body:
            for item in decode_native(native) or ():
                found += list_of(decode(item).get("tools"))
    return found


def _list_own_natives(request: Request) -> list[Native]:
    return [native for native in request.native if native.dialect == DIALECT]


def _is_custom(tool: Tool) -> bool:
    native = tool.native
    if native is None or native.dialect != DIALECT:
        return False
    return decode((object_of(native.body) or {}).get("type")) == "custom"


def _is_trigger(item: Mapping[str, Any]) -> bool:
    return type_of(_peek_at(item)) == "compaction_trigger"


def _find_output_type(items: Sequence[Fields]) -> str:
    """Return the type of a result's one item, or ""."""
    return type_of(_peek_at(items[0])) if len(items) == 1 else ""


def _replace_call_id(item: Fields, ids: Mapping[str, str]) -> Fields:
    """Return an item with its call's id as it is written."""
    seen = _peek_at(item)
    came = call_id_of(seen)
    written = ids.get(came, came)
    if written == came:
        return item
    return {**item, call_id_field(seen): msgspec.Raw(msgspec.json.encode(written))}


def _peek_at(item: Mapping[str, Any]) -> Json:
    """Decode the fields that say what an item is."""
    return {key: decode(item[key]) for key in _PEEKED if key in item}


def decode(value: Any) -> Any:
    """Decode what is still JSON; a plain value stays as it is."""
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        return {key: decode(one) for key, one in cast("Json", value).items()}
    return value
