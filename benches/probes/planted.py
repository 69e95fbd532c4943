"""What was planted in a made-up session and is still in front: exact text against known truth.

Knows facts, rules, corrections, files and open tasks, and looks for each in every request of a
replay. Refuses to judge what a model would make of them.

Of files it asks what a reader would believe: what the standing folds say of them, in order, and
then the calls that are still in sight, which a reader understands as they were meant.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from made.truth import Correction, State, Truth, apply_file_touch

from foldline.core.log import Folded, ModelSaid
from foldline.core.names import format_handle
from foldline.core.parts import Fact
from foldline.core.spine import FoldAt
from foldline.lab.kept_names import KeptShare, words_of
from foldline.lab.replay import Replayed, ReplayStep

DEPTHS = (25, 75, 150)
"""Calls since something was said: below the first, below the second, and so on."""
_EVERY = 10  # calls between two looks at files
_STATES: dict[str, State] = {  # by the first word of what a ledger says
    "read": "read",
    "back": "read",
    "written": "written",
    "removed": "removed",
    "moved": "removed",
}


@dataclass(slots=True)
class Agreement:
    """How far a belief about files agrees with the truth: pairs of a file and its state."""

    right: int = 0
    believed: int = 0
    true: int = 0
    wrong: list[tuple[int, str, str, str]] = field(default_factory=list[tuple[int, str, str, str]])
    """Where not: the call, the file, what is believed and what is true."""

    def compare_belief(self, call: int, belief: dict[str, State], truth: dict[str, State]) -> None:
        """One look."""
        self.right += len(belief.items() & truth.items())
        self.believed += len(belief)
        self.true += len(truth)
        self.wrong += [
            (call, path, belief.get(path, ""), truth.get(path, ""))
            for path in sorted(belief.keys() | truth.keys())
            if belief.get(path) != truth.get(path)
        ]

    @property
    def precision(self) -> float:
        """Of what is believed, the share that is true."""
        return self.right / self.believed if self.believed else 1.0

    @property
    def recall(self) -> float:
        """Of what is true, the share that is believed."""
        return self.right / self.true if self.true else 1.0

    @property
    def f1(self) -> float:
        """Both in one number."""
        return 2 * self.right / (self.believed + self.true) if self.believed + self.true else 1.0


def _make_depth_shares() -> list[KeptShare]:
    return [KeptShare() for _ in (*DEPTHS, None)]


@dataclass(slots=True)
class PlantedKept:
    """What a policy kept of what was planted; counts over all requests unless it says otherwise."""

    constraints: KeptShare = field(default_factory=KeptShare)
    at_end: KeptShare = field(default_factory=KeptShare)
    """Facts in the last request."""
    from_users: list[KeptShare] = field(default_factory=_make_depth_shares)
    from_results: list[KeptShare] = field(default_factory=_make_depth_shares)
    """Facts by whoever stated them, and by how many calls ago."""
    corrections: KeptShare = field(default_factory=KeptShare)
    """Requests after a correction that hold the new value."""
    resurrected: int = 0
    """Requests after a correction whose last word on the matter is the old value."""
    todos: KeptShare = field(default_factory=KeptShare)
    questions: KeptShare = field(default_factory=KeptShare)
    files: Agreement = field(default_factory=Agreement)
    """By all facts that the folds carry."""
    shown: Agreement = field(default_factory=Agreement)
    """By those facts only that the folds' texts show."""


def measure_planted(replayed: Replayed, truth: Truth) -> PlantedKept:
    """What was still there, request by request."""
    found = PlantedKept()
    numbers = {call.at: number for number, call in enumerate(replayed.recorded.calls)}
    reader = _Believer(replayed, truth)
    for step in replayed.steps:
        call, last = numbers[step.sent.at], step is replayed.steps[-1]
        text = "\n".join(step.texts)
        for rule in truth.constraints:
            if rule.call <= call:
                found.constraints.count_use(there=rule.text in text)
        _count_facts(found, truth, call, text, last=last)
        for one in truth.corrections:
            if one.call <= call:
                found.corrections.count_use(there=one.new in text)
                found.resurrected += is_resurrected(one, text)
        for one in truth.iterate_open_obligations(call):
            kind = found.todos if one.kind == "todo" else found.questions
            kind.count_use(there=one.text in text)
        reader.add_step(step)
        if last or not call % _EVERY:
            true = truth.collect_file_states(call)
            found.files.compare_belief(call, reader.collect_file_states(call, step), true)
            found.shown.compare_belief(
                call, reader.collect_file_states(call, step, known=_is_shown), true
            )
    return found


def is_resurrected(one: Correction, text: str) -> bool:
    """Whether the last line of a request that states a value for the key states the old one.

    A line states a value where it holds both key and value; one that holds old and new, as a
    correction does, states the new one.
    """
    old, new = _find_last_line(text, one.key, one.old), _find_last_line(text, one.key, one.new)
    return old > new


def _find_last_line(text: str, key: str, value: str) -> int:
    """Where the last line begins that holds both; -1 where none does."""
    at = text.rfind(key)
    while at >= 0:
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        if value in text[start : end if end >= 0 else len(text)]:
            return start
        at = text.rfind(key, 0, at)
    return -1


def _count_facts(found: PlantedKept, truth: Truth, call: int, text: str, *, last: bool) -> None:
    for fact in truth.facts:
        if fact.call > call:
            continue
        there = fact.value in text
        depth = sum(call - fact.call >= least for least in DEPTHS)
        by = found.from_users if fact.by == "user" else found.from_results
        by[depth].count_use(there=there)
        if last:
            found.at_end.count_use(there=there)


class _Believer:
    """Somebody who reads requests and nothing else, and what they would believe of files."""

    def __init__(self, replayed: Replayed, truth: Truth) -> None:
        answers = (one for one in replayed.recorded.events if isinstance(one, ModelSaid))
        self._words = [words_of(answer.parts) for answer in answers]
        self._root = truth.root
        self._touches: dict[int, list[tuple[str, State]]] = {}
        for touch in truth.touches:  # known from the call behind the one that did it
            self._touches.setdefault(touch.call - 1, []).append((touch.path, touch.state))
        self._folds: dict[int, Folded] = {}
        self._standing: tuple[int, ...] = ()

    def add_step(self, step: ReplayStep) -> None:
        """A request, with the folds that were made for it."""
        for fold in step.folds:
            (put,) = (one.edit for one in fold.change.put if isinstance(one, FoldAt))
            self._folds[put] = fold
            segments = fold.spine.segments
            self._standing = tuple(one.edit for one in segments if isinstance(one, FoldAt))

    def collect_file_states(
        self, call: int, step: ReplayStep, *, known: Callable[[Folded, Fact], bool] | None = None
    ) -> dict[str, State]:
        """The state of every file that the request tells of."""
        files: dict[str, State] = {}
        for fold in (self._folds[at] for at in self._standing):
            facts = (fact for fact in fold.facts if fact.kind == "file")
            for fact in sorted(facts, key=lambda fact: fact.seq):
                state = _STATES.get(fact.text.split(maxsplit=1)[0]) if fact.text else None
                if state and (known is None or known(fold, fact)):
                    apply_file_touch(files, self._strip_root(fact.key), state)
        for number in self._iterate_live_answers(call, step.texts):
            for path, state in self._touches.get(number, ()):
                apply_file_touch(files, path, state)
        return files

    def _iterate_live_answers(self, call: int, texts: Sequence[str]) -> Iterator[int]:
        """The answers that stand in a request as they were given; of equal ones the newest."""
        left = Counter(texts)
        found: list[int] = []
        for number in range(call - 1, -1, -1):
            words = self._words[number]
            if left[words] > 0:
                left[words] -= 1
                found.append(number)
        return reversed(found)

    def _strip_root(self, path: str) -> str:
        """A path as the truth has it: the instructions say where the repository lies."""
        return posixpath.normpath(path).removeprefix(f"{self._root}/")


def _is_shown(fold: Folded, fact: Fact) -> bool:
    return f"{format_handle(fact.seq)}: {fact.text}: {fact.key}" in fold.text
