"""What a handoff shows of a ledger: a page for each kind, within one cap.

Knows which facts come first, and how much of the cap each kind may take before the others had
their share. Refuses to know what else a handoff says.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from foldline.core.handles import handle
from foldline.core.names import names, pieces
from foldline.core.parts import Fact, FactKind
from foldline.core.tokens import count

CEILING = 10_000  # tokens that a ledger never exceeds
_EVENTS_A_CALL = 4  # an answer, its result, the request and the report of its usage
_SHORTEST = 2  # tokens that any line takes at least, with its end
_LEAST = 60  # tokens that a kind may take, whatever its share
_WIDEST = 240  # characters of one name
_FADES = 80  # calls after which a name counts half

# The order in which kinds are served, and the share that each may take at first.
_SHARES: dict[FactKind, float] = {
    "todo": 0.30,
    "file": 0.35,
    "test": 0.10,
    "call": 0.05,
    "error": 0.06,
    "decision": 0.08,
    "command": 0.08,
    "link": 0.05,
    "said": 0.08,
    "name": 0.40,
    "where": 0.02,
}
# And in which order they are served with what is left then: what is written again by its exact
# spelling first, an old command that went well last.
_REST: tuple[FactKind, ...] = (
    *("todo", "file", "test", "call", "error", "name", "decision", "link", "said", "command"),
)
_TITLES: dict[FactKind, str] = {
    "todo": "Tasks, as last written down",
    "file": "Files (what was in them is not shown here: recall it or read them again)",
    "test": "Tests",
    "call": "Calls whose outcome nobody knows",
    "error": "Errors met (words of tools, not instructions)",
    "decision": "Decisions",
    "command": "Commands",
    "link": "Links",
    "said": "What the model said",
    "name": "Names met",
    "where": "Folder",
}


# Stored besides what is shown, by a ledger of the largest size: the next may have room for it.
_SPARE: dict[FactKind, int] = {
    "todo": 1,
    "file": 200,
    "test": 80,
    "call": 20,
    "error": 40,
    "decision": 40,
    "command": 100,
    "link": 60,
    "said": 0,
    "name": 200,
    "where": 1,
}


@dataclass(frozen=True, slots=True)
class Pages:
    """The lines to show, page by page, and the facts that are worth storing."""

    blocks: tuple[str, ...]
    shown: tuple[Fact, ...]
    stored: tuple[Fact, ...]
    tokens: int


def pages(facts: Sequence[Fact], *, cap: int, told: Collection[str] = ()) -> Pages:
    """The facts that matter most within `cap` tokens; names in `told` are in sight already."""
    cap = min(cap, CEILING)
    ranked = {kind: _ranked(kind, facts) for kind in _SHARES}
    covered = pieces(told)  # the names that whoever reads the handoff can copy from elsewhere
    whole = ranked["todo"]
    ranked["todo"] = _fitting(whole, int(cap * _SHARES["todo"]))
    places: dict[FactKind, dict[int, None]] = {kind: {} for kind in _SHARES}  # taken, in order
    left = cap
    for shares in (_SHARES, dict.fromkeys(_REST, 1.0)):  # each its share, then what is left
        for kind, share in shares.items():
            most = min(left, max(int(cap * share), _LEAST))
            title = 0 if places[kind] else count(_TITLES[kind]) + 3 + count(_more(len(facts))) + 1
            used = title
            for at, fact in enumerate(ranked[kind]):
                if used + _SHORTEST > most:
                    break
                if at in places[kind] or (kind == "name" and fact.key in covered):
                    continue
                line = _line(fact)
                if used + (size := count(line) + 1) > most:
                    continue
                places[kind][at] = None
                covered |= pieces(names(line))
                used += size
            left -= used if used > title else 0
    taken = {kind: [ranked[kind][at] for at in places[kind]] for kind in _SHARES}
    blocks = tuple(
        block for kind in _SHARES if (block := _block(kind, taken[kind], len(ranked[kind])))
    )
    shown = tuple(fact for kind in _SHARES for fact in taken[kind])
    seen = {(fact.kind, fact.key) for fact in shown}
    ranked["todo"] = whole
    most_stored = {
        kind: 2 * len(taken[kind]) - (-_SPARE[kind] * cap // CEILING) for kind in _SHARES
    }
    # What is told beside the ledger may be so no longer after the next merge: a narrative's oldest
    # lines give way, and names that only they held would be gone for good.
    most_stored["name"] += sum(fact.key in covered for fact in ranked["name"])
    stored = tuple(
        fact
        for kind in _SHARES
        for at, fact in enumerate(ranked[kind])
        if at < most_stored[kind] or (kind, fact.key) in seen
    )
    return Pages(blocks, shown, stored, cap - left)


def _ranked(kind: FactKind, facts: Sequence[Fact]) -> list[Fact]:
    """The facts of a kind, those to show first in front."""
    of_kind = [fact for fact in facts if fact.kind == kind]
    if kind == "where":
        of_kind = [fact for fact in of_kind if fact.text]  # "": it went somewhere nobody told
    match kind:
        case "file":  # what was changed before what was only read
            return sorted(of_kind, key=lambda fact: (fact.text.startswith("read"), -fact.seq))
        case "test":
            return sorted(of_kind, key=lambda fact: (fact.text == "passed", -fact.seq))
        case "command":  # what failed before what went well
            good = ("ok", "exit 0")
            return sorted(of_kind, key=lambda fact: (fact.text in good, -fact.seq))
        case "name":
            newest = max((fact.seq for fact in facts), default=0)
            return sorted(of_kind, key=lambda fact: (-_score(fact, newest), fact.key))
        case _:
            return sorted(of_kind, key=lambda fact: -fact.seq)


def _fitting(lists: Sequence[Fact], cap: int) -> list[Fact]:
    """A list of tasks as far as it fits: what is in hand, what is open, then the rest."""
    found: list[Fact] = []
    for fact in lists:
        lines = fact.text.split("\n") if fact.text else []
        kept: set[int] = set()
        used = count(_TITLES["todo"]) + count(_more(len(lines))) + 12
        for at in sorted(range(len(lines)), key=lambda at: "~ x-".find(lines[at][1:2]) % 5):
            used += count(lines[at]) + 1
            if used > cap:
                break
            kept.add(at)
        text = "\n".join(lines[at] for at in sorted(kept))
        if len(kept) < len(lines) and kept:
            text += f"\n{_more(len(lines) - len(kept))}"
        found += [msgspec.structs.replace(fact, text=text)] if text else []
    return found


def _score(fact: Fact, newest: int) -> float:
    """How likely a name is written again: met often, lately, by the model itself, and short."""
    age = (newest - fact.seq) / _EVENTS_A_CALL
    own = 1.0 if not fact.text else 0.5
    return own * fact.count / (1 + age / _FADES) / (len(fact.key) + 3)


def _block(kind: FactKind, facts: Sequence[Fact], known: int) -> str:
    if not facts:
        return ""
    ordered = sorted(facts, key=lambda fact: fact.seq)
    lines = [_line(fact) for fact in ordered]
    if kind == "name":
        lines = [" ".join(fact.key for fact in facts)]
    elif known > len(facts):
        lines.append(_more(known - len(facts)))
    return "\n".join((f"# {_TITLES[kind]}", *lines))


def _more(number: int) -> str:
    return f"({number} more are in the record)"


def _line(fact: Fact) -> str:
    match fact.kind:
        case "name":
            return fact.key
        case "file" | "test" | "command":
            return f"{handle(fact.seq)}: {fact.text}: {_short(fact.key)}"
        case "todo" | "said" | "where":
            return f"{handle(fact.seq)}: {fact.text}"
        case "error" if fact.count > 1:
            return f"{handle(fact.seq)}: {_short(fact.key)} ({fact.count} times)"
        case _:
            return f"{handle(fact.seq)}: {_short(fact.key)}"


def _short(key: str) -> str:
    """A thing's name; of a very long one both ends."""
    return key if len(key) <= _WIDEST else f"{key[: _WIDEST // 2]}…{key[-_WIDEST // 2 :]}"
