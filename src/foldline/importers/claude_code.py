"""Reads sessions of Claude Code, one JSON record per line.

The records are a tree: a rewind leaves a branch behind, a sub-agent has its own root, and results
of parallel calls hang beside the line that leads to the newest record. One answer is spread over
several records. A sub-agent's records become a separate session, linked from where it was called.
The system prompt and the tools are not in these files.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from foldline.core.log import Checkpointed, Linked, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import calls_of, text_of
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.importers import draft_log
from foldline.importers.draft_log import Taking
from foldline.importers.source import Imported, Notes, Record, parse_timestamp, stem_of, str_of


def collect_sidechains(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Collect each sub-agent's records by its id, or by the id of its first record."""
    parents = {
        str_of(body.get("uuid")): str_of(body.get("parentUuid"))
        for _, body in records
        if body.get("isSidechain") is True
    }
    chains: defaultdict[str, list[Record]] = defaultdict(list)
    roots: dict[str, str] = {}
    for record in records:
        if record.body.get("isSidechain") is not True:
            continue
        root = str_of(record.body.get("uuid"))
        seen = {root: root}
        while root not in roots and parents.get(root) in parents and parents[root] not in seen:
            root = parents[root]
            seen[root] = root
        root = roots.get(root, root)
        roots.update(dict.fromkeys(seen, root))
        chains[str_of(record.body.get("agentId")) or root].append(record)
    return dict(chains)


def select_newest_branch(records: Sequence[Record], notes: Notes) -> list[Record]:
    """Select the records of the newest branch, and those in no branch, in file order."""
    kept = _drop_duplicates(records, notes)
    places = {str_of(body.get("uuid")): at for at, (_, body) in enumerate(kept) if "uuid" in body}
    linked = [at for at, (_, body) in enumerate(kept) if "uuid" in body]
    live = _collect_ancestors(kept, linked, places)
    answers = {_find_answer_id(kept[at].body) for at in live} - {""}
    live |= {at for at in linked if _find_answer_id(kept[at].body) in answers}
    calls = {call for at in live for call in _collect_block_ids(kept[at].body, "tool_use", "id")}
    live |= {
        at
        for at in linked
        if calls.intersection(_collect_block_ids(kept[at].body, "tool_result", "tool_use_id"))
        or str_of(kept[at].body.get("sourceToolUseID")) in calls
    }
    left = [at for at in linked if at not in live]
    notes.add_note("record of an abandoned branch", times=len(left))
    gone = set(left)
    return [record for at, record in enumerate(kept) if at not in gone]


def has_result(body: Json) -> bool:
    """Whether a record holds results of calls."""
    return bool(_collect_block_ids(body, "tool_result", "tool_use_id"))


def _drop_duplicates(records: Sequence[Record], notes: Notes) -> list[Record]:
    """Keep each record once: a resumed session may repeat its own."""
    kept: list[Record] = []
    seen: set[str] = set()
    for record in records:
        own = str_of(record.body.get("uuid"))
        if own and own in seen:
            notes.add_note("record for the second time", record.place)
            continue
        seen.add(own)
        kept.append(record)
    return kept


def _collect_ancestors(
    records: Sequence[Record], linked: list[int], places: dict[str, int]
) -> set[int]:
    """Walk back from the newest record; a gap continues with the record before."""
    before = dict(zip(linked[1:], linked, strict=False))
    live: set[int] = set()
    at = linked[-1] if linked else None
    while at is not None and at not in live:
        live.add(at)
        body = records[at].body
        parent = body.get("parentUuid") or body.get("logicalParentUuid")
        compacted = body.get("subtype") == "compact_boundary" or "isCompactSummary" in body
        if parent is None and not compacted:
            break
        at = places.get(str_of(parent), before.get(at))
    return live


def _find_answer_id(body: Json) -> str:
    is_answer = body.get("type") == "assistant"
    return str_of(dict_of(body.get("message")).get("id")) if is_answer else ""


def _collect_block_ids(body: Json, kind: str, key: str) -> list[str]:
    found = map(dict_of, list_of(dict_of(body.get("message")).get("content")))
    return [str_of(block.get(key)) for block in found if block.get("type") == kind]


KIND = "claude-code"
_MARKS = ("sessionId", "parentUuid", "leafUuid")
_SILENT = {"turn_duration", "stop_hook_summary"}
"""Measurements of the client; nothing that anybody said."""


def can_read(body: Json) -> bool:
    """Whether a record is Claude Code's."""
    return isinstance(body.get("type"), str) and any(mark in body for mark in _MARKS)


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read the session of a file, then those of its sub-agents."""
    chains = collect_sidechains(records)
    within = {id(record) for chain in chains.values() for record in chain}
    main = [record for record in records if id(record) not in within]
    own = next((s for _, body in records if (s := str_of(body.get("sessionId")))), "")
    own = own or stem_of(name) or KIND
    if chains and not any(body.get("type") in ("user", "assistant") for _, body in main):
        return [
            _Session(notes if at == 0 else Notes(), own, {}).read_records(chain, f"{own}/{key}")
            for at, (key, chain) in enumerate(chains.items())
        ]
    notes.add_note("record of a sub-agent, a session of its own", times=len(within))
    prompts = {f"{own}/{key}": _find_prompt(chain) for key, chain in chains.items()}
    sessions = [_Session(notes, own, prompts).read_records(main, own)]
    for key, chain in chains.items():
        sessions.append(_Session(Notes(), own, {}).read_records(chain, f"{own}/{key}"))
    return sessions


class _Session:
    """A session's draft, and the sub-agents that it must still be linked to."""

    def __init__(self, notes: Notes, own: str, prompts: dict[str, str]) -> None:
        self.taking = Taking(KIND, notes)
        self.own = own
        self.prompts = prompts
        self.linked: set[str] = set()
        self.title = ""
        self.version = ""
        self.compacted = ""
        """The text of a compaction boundary whose summary has not come yet."""

    def read_records(self, records: Sequence[Record], name: str) -> Imported:
        answers: defaultdict[str, list[Json]] = defaultdict(list)
        live = select_newest_branch(records, self.taking.notes)
        for _, body in live:
            if body.get("type") == "assistant":
                answers[_parse_answer_id(body)].append(body)
        for place, body in live:
            self.taking.now = parse_timestamp(body.get("timestamp")) or self.taking.now
            self._record_version(str_of(body.get("version")))
            match body.get("type"):
                case "assistant":
                    self._flush_compaction()
                    if answer := answers.pop(_parse_answer_id(body), None):
                        self._add_answer(answer, place)
                case "user":
                    self._add_user_message(body, place)
                case "system" if body.get("subtype") == "compact_boundary":
                    self.compacted = str_of(body.get("content")) or "compacted"
                case "summary" | "ai-title" | "custom-title":
                    self._add_title(body)
                case "attachment":
                    self._add_attachment(dict_of(body.get("attachment")), place)
                case kind:
                    self._note_unknown_record(str_of(kind), str_of(body.get("subtype")), place)
        self._flush_compaction()
        for agent in sorted(self.prompts.keys() - self.linked):
            self._link_agent(agent, "")
        return self.taking.finish_session(name)

    def _record_version(self, version: str) -> None:
        """Record a restart when the client's version changes: it is another process."""
        if version and self.version and version != self.version:
            self.taking.record_restart(f"version {self.version} → {version}")
        self.version = version or self.version

    def _add_answer(self, records: list[Json], place: str) -> None:
        """Add an answer from all its records; each repeats the usage, the last is complete."""
        messages = [dict_of(body.get("message")) for body in records]
        last = messages[-1]
        model = str_of(last.get("model"))
        if model == "<synthetic>":
            self.taking.notes.add_note("answer that the client wrote itself", place)
            return
        self.taking.answered_by(f"anthropic/{model}" if model.startswith("claude") else model)
        if life := draft_log.parse_cache_lifetime(last.get("usage")):
            self.taking.record_cache_lifetime(life)
        content = [block for one in messages for block in _list_blocks(one)]
        stop = next((one["stop_reason"] for one in messages[::-1] if one.get("stop_reason")), None)
        whole: Json = {"role": "assistant", "content": content, "stop_reason": stop}
        for event in draft_log.parse_events(whole, self.taking.notes, place):
            self.taking.add_event(event, place)
            self.taking.record_usage(draft_log.parse_message_usage(last.get("usage")))
            if isinstance(event, ModelSaid):
                for call in calls_of(event.parts):
                    self._link_called_agent(call.id, call.arguments)

    def _link_called_agent(self, call_id: str, arguments: str) -> None:
        """Link the sub-agent whose prompt this call gave."""
        prompt = str_of(dict_of(msgspec.json.decode(arguments)).get("prompt"))
        for agent, given in self.prompts.items():
            if prompt and prompt == given and agent not in self.linked:
                self._link_agent(agent, call_id)
                return

    def _link_agent(self, agent: str, call_id: str) -> None:
        if agent not in self.linked:
            self.linked.add(agent)
            self.taking.add_event(Linked(agent, call_id))

    def _add_user_message(self, body: Json, place: str) -> None:
        message = {**dict_of(body.get("message")), "role": "user"}
        events = draft_log.parse_events(
            message,
            self.taking.notes,
            place,
            speaker="notice" if body.get("isMeta") is True else "human",
        )
        if body.get("isCompactSummary") is True:
            texts = [text_of(one.parts) for one in events if isinstance(one, UserSaid)]
            self.compacted = "\n".join(texts)
        self._flush_compaction()
        if body.get("isCompactSummary") is True:
            return
        beside = body.get("toolUseResult")
        agent = str_of(dict_of(beside).get("agentId"))
        for event in events:
            self.taking.add_event(event, place)
            if agent and isinstance(event, ToolReturned):
                self._link_agent(f"{self.own}/{agent}", event.call_id)
        if beside is not None and has_result(body):
            self.taking.notes.add_note("client's own copy of a result", place)

    def _flush_compaction(self) -> None:
        """Add a pending compaction as a checkpoint."""
        if self.compacted:
            self.taking.add_event(Checkpointed("compaction", self.compacted))
        self.compacted = ""

    def _add_title(self, body: Json) -> None:
        found = (str_of(body.get(key)) for key in ("summary", "aiTitle", "customTitle"))
        title = next((one for one in found if one), "")
        if title and title != self.title:
            self.title = title
            self.taking.add_event(Checkpointed("title", title))

    def _add_attachment(self, body: Json, place: str) -> None:
        """Add an attachment if it is the user's own words; note any other."""
        kind = str_of(body.get("type"))
        if kind != "queued_command" or not body.get("prompt"):
            self.taking.notes.add_note(f"attachment {kind}", place)
            return
        message: Json = {"role": "user", "content": body["prompt"]}
        for event in draft_log.parse_events(message, self.taking.notes, place):
            self.taking.add_event(event, place)

    def _note_unknown_record(self, kind: str, subtype: str, place: str) -> None:
        if subtype not in _SILENT:
            what = f"record {kind or 'without a type'} {subtype}"
            self.taking.notes.add_note(what, place)


def _parse_answer_id(body: Json) -> str:
    """Return the id that the records of one answer share."""
    own = str_of(dict_of(body.get("message")).get("id"))
    return own or str_of(body.get("uuid")) or str(id(body))


def _list_blocks(message: Json) -> list[object]:
    content = message.get("content")
    return [content] if isinstance(content, str) else list_of(content)


def _find_prompt(chain: Sequence[Record]) -> str:
    """Return the prompt that a sub-agent was given."""
    for _, body in chain:
        if body.get("type") == "user":
            content = dict_of(body.get("message")).get("content")
            return text_of(draft_log.parse_blocks(content, Notes()).parts)
    return ""
