"""Which of Claude Code's records are the conversation.

Knows that its records are a tree: a rewind leaves a branch behind, a sub-agent has a root of its
own, and results of parallel calls hang beside the line that leads to the newest record. Refuses to
know what the records say.
"""

from collections import defaultdict
from collections.abc import Sequence

from foldline.importers.base import Json, Notes, Record, rows, table, words


def sidechains(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each sub-agent, by its id, or by the id of its first record."""
    parents = {
        words(body.get("uuid")): words(body.get("parentUuid"))
        for _, body in records
        if body.get("isSidechain") is True
    }
    chains: defaultdict[str, list[Record]] = defaultdict(list)
    roots: dict[str, str] = {}
    for record in records:
        if record.body.get("isSidechain") is not True:
            continue
        root = words(record.body.get("uuid"))
        seen = {root: root}
        while root not in roots and parents.get(root) in parents and parents[root] not in seen:
            root = parents[root]
            seen[root] = root
        root = roots.get(root, root)
        roots.update(dict.fromkeys(seen, root))
        chains[words(record.body.get("agentId")) or root].append(record)
    return dict(chains)


def branch(records: Sequence[Record], notes: Notes) -> list[Record]:
    """The records of the newest branch in the file's order, and those that are in no branch."""
    kept = _once(records, notes)
    places = {words(body.get("uuid")): at for at, (_, body) in enumerate(kept) if "uuid" in body}
    linked = [at for at, (_, body) in enumerate(kept) if "uuid" in body]
    live = _line(kept, linked, places)
    answers = {_id(kept[at].body) for at in live} - {""}
    live |= {at for at in linked if _id(kept[at].body) in answers}
    calls = {call for at in live for call in _ids(kept[at].body, "tool_use", "id")}
    live |= {
        at
        for at in linked
        if calls.intersection(_ids(kept[at].body, "tool_result", "tool_use_id"))
        or words(kept[at].body.get("sourceToolUseID")) in calls
    }
    left = [at for at in linked if at not in live]
    notes.take("record of an abandoned branch", times=len(left))
    gone = set(left)
    return [record for at, record in enumerate(kept) if at not in gone]


def has_result(body: Json) -> bool:
    """Whether a record holds results of calls."""
    return bool(_ids(body, "tool_result", "tool_use_id"))


def _once(records: Sequence[Record], notes: Notes) -> list[Record]:
    """Each record once: a session that was resumed may repeat its own."""
    kept: list[Record] = []
    seen: set[str] = set()
    for record in records:
        own = words(record.body.get("uuid"))
        if own and own in seen:
            notes.take("record for the second time", record.place)
            continue
        seen.add(own)
        kept.append(record)
    return kept


def _line(records: Sequence[Record], linked: list[int], places: dict[str, int]) -> set[int]:
    """The way back from the newest record; over a gap it goes on with the record before."""
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
        at = places.get(words(parent), before.get(at))
    return live


def _id(body: Json) -> str:
    is_answer = body.get("type") == "assistant"
    return words(table(body.get("message")).get("id")) if is_answer else ""


def _ids(body: Json, kind: str, key: str) -> list[str]:
    found = map(table, rows(table(body.get("message")).get("content")))
    return [words(block.get(key)) for block in found if block.get("type") == kind]
