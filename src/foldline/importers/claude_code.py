"""Sessions of Claude Code, one JSON record a line.

Knows its records, which of them the newest branch holds, and that one answer is spread over
several. Refuses to know the blocks of a message. The system prompt and the tools are not in these
files. A sub-agent's records become a session of their own, linked from where it was called.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from foldline.core.log import Checkpointed, Linked, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import calls_of, text_of
from foldline.importers import blocks
from foldline.importers.base import Imported, Json, Notes, Record, rows, seconds, stem, table, words
from foldline.importers.claude_tree import branch, has_result, sidechains
from foldline.importers.draft_log import Taking

KIND = "claude-code"
_MARKS = ("sessionId", "parentUuid", "leafUuid")
_SILENT = {"turn_duration", "stop_hook_summary"}
"""What the client measured; nothing that anybody said."""


def claims(body: Json) -> bool:
    """Whether a record is one of Claude Code's."""
    return isinstance(body.get("type"), str) and any(mark in body for mark in _MARKS)


def read(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """The session of a file, then those of the sub-agents whose records it holds."""
    chains = sidechains(records)
    within = {id(record) for chain in chains.values() for record in chain}
    main = [record for record in records if id(record) not in within]
    own = next((s for _, body in records if (s := words(body.get("sessionId")))), "")
    own = own or stem(name) or KIND
    if chains and not any(body.get("type") in ("user", "assistant") for _, body in main):
        return [
            _Session(notes if at == 0 else Notes(), own, {}).read(chain, _agent(own, key))
            for at, (key, chain) in enumerate(chains.items())
        ]
    notes.take("record of a sub-agent, a session of its own", times=len(within))
    prompts = {_agent(own, key): _prompt(chain) for key, chain in chains.items()}
    return [
        _Session(notes, own, prompts).read(main, own),
        *(_Session(Notes(), own, {}).read(c, _agent(own, key)) for key, c in chains.items()),
    ]


class _Session:
    """One session in the making, and the sub-agents it is still to be linked to."""

    def __init__(self, notes: Notes, own: str, prompts: dict[str, str]) -> None:
        self.taking = Taking(KIND, notes)
        self.own = own
        self.prompts = prompts
        self.linked: set[str] = set()
        self.title = ""
        self.version = ""
        self.compacted = ""
        """What a boundary said whose summary has not come."""

    def read(self, records: Sequence[Record], name: str) -> Imported:
        answers: defaultdict[str, list[Json]] = defaultdict(list)
        live = branch(records, self.taking.notes)
        for _, body in live:
            if body.get("type") == "assistant":
                answers[_answer(body)].append(body)
        for place, body in live:
            self.taking.now = seconds(body.get("timestamp")) or self.taking.now
            self._running(words(body.get("version")))
            match body.get("type"):
                case "assistant":
                    self._compaction()
                    if told := answers.pop(_answer(body), None):
                        self._answered(told, place)
                case "user":
                    self._said(body, place)
                case "system" if body.get("subtype") == "compact_boundary":
                    self.compacted = words(body.get("content")) or "compacted"
                case "summary" | "ai-title" | "custom-title":
                    self._titled(body)
                case "attachment":
                    self._attached(table(body.get("attachment")), place)
                case kind:
                    self._unknown(words(kind), words(body.get("subtype")), place)
        self._compaction()
        for agent in sorted(self.prompts.keys() - self.linked):
            self._link(agent, "")
        return self.taking.done(name)

    def _running(self, version: str) -> None:
        """A client of another version is another process: the session was resumed in it."""
        if version and self.version and version != self.version:
            self.taking.restarted(f"version {self.version} → {version}")
        self.version = version or self.version

    def _answered(self, records: list[Json], place: str) -> None:
        """An answer, of all its records; each repeats its usage, and the last has counted most."""
        messages = [table(body.get("message")) for body in records]
        last = messages[-1]
        model = words(last.get("model"))
        if model == "<synthetic>":
            self.taking.notes.take("answer that the client wrote itself", place)
            return
        self.taking.answered_by(f"anthropic/{model}" if model.startswith("claude") else model)
        if life := blocks.life(last.get("usage")):
            self.taking.keeps(life)
        content = [block for one in messages for block in _blocks(one)]
        stop = next((one["stop_reason"] for one in messages[::-1] if one.get("stop_reason")), None)
        whole: Json = {"role": "assistant", "content": content, "stop_reason": stop}
        for event in blocks.said(whole, self.taking.notes, place):
            self.taking.add(event, place)
            self.taking.used(blocks.usage(last.get("usage")))
            if isinstance(event, ModelSaid):
                for call in calls_of(event.parts):
                    self._called(call.id, call.arguments)

    def _called(self, call_id: str, arguments: str) -> None:
        """Link a sub-agent where it was called: by the words it was given."""
        prompt = words(table(msgspec.json.decode(arguments)).get("prompt"))
        for agent, given in self.prompts.items():
            if prompt and prompt == given and agent not in self.linked:
                self._link(agent, call_id)
                return

    def _link(self, agent: str, call_id: str) -> None:
        if agent not in self.linked:
            self.linked.add(agent)
            self.taking.add(Linked(agent, call_id))

    def _said(self, body: Json, place: str) -> None:
        message = {**table(body.get("message")), "role": "user"}
        told = blocks.said(
            message,
            self.taking.notes,
            place,
            speaker="notice" if body.get("isMeta") is True else "human",
        )
        if body.get("isCompactSummary") is True:
            texts = [text_of(one.parts) for one in told if isinstance(one, UserSaid)]
            self.compacted = "\n".join(texts)
        self._compaction()
        if body.get("isCompactSummary") is True:
            return
        beside = body.get("toolUseResult")
        agent = words(table(beside).get("agentId"))
        for event in told:
            self.taking.add(event, place)
            if agent and isinstance(event, ToolReturned):
                self._link(_agent(self.own, agent), event.call_id)
        if beside is not None and has_result(body):
            self.taking.notes.take("client's own copy of a result", place)

    def _compaction(self) -> None:
        """Keep apart what the client's summary said; a boundary may have none."""
        if self.compacted:
            self.taking.add(Checkpointed("compaction", self.compacted))
        self.compacted = ""

    def _titled(self, body: Json) -> None:
        found = (words(body.get(key)) for key in ("summary", "aiTitle", "customTitle"))
        title = next((one for one in found if one), "")
        if title and title != self.title:
            self.title = title
            self.taking.add(Checkpointed("title", title))

    def _attached(self, body: Json, place: str) -> None:
        """What the client put beside a message; only a person's own words are carried."""
        kind = words(body.get("type"))
        if kind != "queued_command" or not body.get("prompt"):
            self.taking.notes.take(f"attachment {kind}", place)
            return
        message: Json = {"role": "user", "content": body["prompt"]}
        for event in blocks.said(message, self.taking.notes, place):
            self.taking.add(event, place)

    def _unknown(self, kind: str, subtype: str, place: str) -> None:
        if subtype not in _SILENT:
            what = f"record {kind or 'without a type'} {subtype}"
            self.taking.notes.take(what, place)


def _answer(body: Json) -> str:
    """What the records of one answer share."""
    own = words(table(body.get("message")).get("id"))
    return own or words(body.get("uuid")) or str(id(body))


def _blocks(message: Json) -> list[object]:
    content = message.get("content")
    return [content] if isinstance(content, str) else rows(content)


def _agent(own: str, key: str) -> str:
    return f"{own}/{key}"


def _prompt(chain: Sequence[Record]) -> str:
    """The words that a sub-agent was given."""
    for _, body in chain:
        if body.get("type") == "user":
            told = blocks.parts(table(body.get("message")).get("content"), Notes()).parts
            return text_of(told)
    return ""
