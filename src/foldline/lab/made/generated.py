"""Sessions that never happened, like those that do: a coding agent at work on a made-up repository.

Knows what users say over several tasks, what they forbid and take back, and what is true at every
call. Refuses to know policies. The same seed gives the same bytes.

Calls, sizes and growth follow recorded coding sessions (some 200 calls and 120,000 tokens; results
hold most of it, and most of that is in few of them). What is written again has been seen before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from foldline.core.log import Event, Instructed, ModelSaid, Opened, UserSaid
from foldline.core.parts import Text
from foldline.lab.made import sayings
from foldline.lab.made.coder import MadeCall
from foldline.lab.made.editor import Editor
from foldline.lab.made.repository import MadeFault, Repository, made
from foldline.lab.made.truth import (
    KINDS,
    By,
    Constraint,
    Correction,
    FactKind,
    Obligation,
    Planted,
    Truth,
)
from foldline.lab.recorded import Recorded

_FILES = 0.7  # of the turns: a file of its own is made, one of an earlier turn is tidied
_CARRIED = 5  # open tasks that are taken over into the next turn
_MODEL = "anthropic/claude-sonnet-4-5"
_LARGE = 0.75  # of the steps that are free: a file is read, while the session is behind its size
# Of the other free steps: edits near and far, looking for names, differences, files of its own made
# and tidied, numbers, what was changed read again, failures, files made anew, states, tests.
_SHARES = (15, 9, 10, 6, 14, 12, 5, 8, 10, 5, 2, 4)


@dataclass(frozen=True, slots=True)
class Generated:
    """A session, and what is true of it."""

    recorded: Recorded
    truth: Truth


def coding(seed: int, *, calls: int = 200, tokens: int = 120_000) -> Generated:
    """A coding agent's session of about so many calls and tokens."""
    random = Random(seed)  # noqa: S311 - a session that can be made again
    return _DraftSession(random, calls, tokens).run(f"coding {seed}")


class _DraftSession:
    """A session in the making."""

    def __init__(self, random: Random, calls: int, tokens: int) -> None:
        self.random, self.calls, self.most = random, calls, tokens
        self.repository = made(random)
        self.coder = Editor(random, self.repository, absolute=random.random() < 0.5, events=[])  # noqa: PLR2004
        self.listed = random.random() < 0.5  # noqa: PLR2004 - tasks as text, or by a tool
        self.tasks: list[str] = []
        """What is open on the list."""
        self.facts: list[Planted] = []
        self.rules: list[Constraint] = []
        self.stated: dict[str, str] = {}
        """By key: values that are yet to be corrected."""
        self.corrections: list[Correction] = []
        self.obligations: list[Obligation] = []
        self.values: set[str] = set()

    def run(self, name: str) -> Generated:
        """All turns."""
        for event in _opening(self.repository):
            self.coder.take(event)
        turns = max(min(self.random.randint(6, 10), self.calls // 20), 1)
        rules = self.random.sample(sayings.RULES, min(len(sayings.RULES), 6))
        for turn in range(turns):
            self.turn(turn, turns, rules[turn::turns])
        truth = Truth(
            self.repository.root,
            tuple(self.facts),
            tuple(self.rules),
            tuple(self.corrections),
            tuple(self.coder.touches),
            tuple(self.obligations),
        )
        return Generated(Recorded(name, _MODEL, tuple(self.coder.events)), truth)

    # One turn.

    def turn(self, turn: int, turns: int, rules: Sequence[str]) -> None:
        """A task: the user's words, the work, and the answer."""
        end = self.calls * (turn + 1) // turns
        faults = self._chosen()
        self.coder.names.append([])
        self.coder.meet(*(fault.function for fault in faults), *(fault.path for fault in faults))
        self._asked(turn, faults[0], rules, last=turn == turns - 1)
        self._list([f"make {fault.test} pass" for fault in faults])
        work = self._work(faults)
        while self.coder.call < end - 1 and next(work, None) is not None:
            pass
        self._answer(turn, turns)

    def _chosen(self) -> list[MadeFault]:
        """The faults of one module first, then others of its package."""
        standing = self.repository.failing() or self.repository.faults
        first = self.random.choice(standing)
        package = first.path.rpartition("/")[0]
        near = [one for one in standing if one.path.startswith(package) and one is not first]
        near.sort(key=lambda one: one.path != first.path)
        return [first, *near[:3]]

    def _asked(self, turn: int, fault: MadeFault, rules: Sequence[str], *, last: bool) -> None:
        coder, random = self.coder, self.random
        lines = [random.choice(sayings.TASKS).format(fault.place, fault.function)]
        for rule in rules:
            text = rule.format(*self._nouns(2), fault.function, random.randint(2_000, 9_999))
            self.rules.append(Constraint(coder.call, text))
            lines.append(text)
        if turn == 1:  # a log that somebody pasted, with a sentence behind it
            lines += ["This is what it printed:", "```", *self._pasted(), "```"]
        for _ in range(random.randint(1, 2)):
            fact = self._fact("user")
            lines.append(f"For the record, the {fact.key} is {fact.value}.")
        said = self._corrected(turn, last=last)
        lines += said
        lines += self._answered()
        coder.take(UserSaid((Text("\n".join(lines)),)))
        if said:
            told = said[-1].rpartition(": ")[2]  # of a correction, what holds now
            coder.step(f"Noted: {told[0].lower()}{told[1:]}", self._status())

    def _corrected(self, turn: int, *, last: bool) -> list[str]:
        """A value that will be corrected; or the correction of one, two turns later."""
        if turn < len(sayings.CORRECTED):
            key, old = sayings.CORRECTED[turn].format(self._nouns(1)[0]), self._value("code")
            self.stated[key] = old
            return [f"The {key} is {old}."]
        if not self.stated or (turn % 2 and not last):
            return []
        key = next(iter(self.stated))
        old, new = self.stated.pop(key), self._value("code")
        self.corrections.append(Correction(self.coder.call, key, old, new))
        return [f"The {key} is no longer {old}: the {key} is {new}."]

    def _work(self, faults: Sequence[MadeFault]) -> Iterator[bool]:
        """Step by step, as long as somebody asks."""
        coder, random = self.coder, self.random
        coder.list()
        yield True
        if random.random() < _FILES and coder.tidy():
            yield True
        if random.random() < _FILES:
            self._file(faults[0])
            yield True
        for fault in faults:
            coder.run(fault.place)
            yield True
            for _ in self._explore(fault):
                yield True
            if fault.wrong in self.repository.files[fault.path]:
                if not coder.knows(fault):
                    coder.look(fault.path, near=fault.function)
                    yield True
                if random.random() < 0.15:  # noqa: PLR2004
                    coder.miss(fault.path, fault.wrong)
                    yield True
                coder.repair(fault)
                yield True
                if random.random() < 0.4 and coder.check():  # noqa: PLR2004
                    yield True
                coder.run(fault.place)
                yield True
            self._tick(f"make {fault.test} pass")
            yield True
            self._status_of_fact()
            yield True
            for number in range(random.randint(1, 3)):
                self._beside(fault, small=not number)
                yield True
        while True:
            self._beside(faults[0])
            yield True

    def _explore(self, fault: MadeFault) -> Iterator[bool]:
        coder = self.coder
        coder.grep(fault.function)
        yield True
        for path in (fault.path, fault.place):
            if path not in coder.seen or (self._behind() and self.random.random() < _LARGE):
                coder.look(path)
                yield True

    def _beside(self, fault: MadeFault, *, small: bool = False) -> None:
        """Something else: large while the session is behind its size, small while it is ahead."""
        coder, random = self.coder, self.random
        if not small and self._behind() and random.random() < _LARGE:
            package = fault.path.rpartition("/")[0]
            files = sorted(self.repository.files)
            near = [path for path in files if path.startswith(package)]
            coder.look(random.choice(random.choice((near, near, files))))
            return
        steps = (
            lambda: coder.revise(far=False),
            lambda: coder.revise(far=True),
            lambda: coder.grep(coder.name().rpartition("/")[2].removesuffix(".py")),
            coder.difference,
            lambda: self._file(fault),
            coder.tidy,
            coder.number,
            coder.check,
            coder.stumble,
            coder.again,
            self._status_of_fact,
            lambda: coder.run(fault.place),
        )
        (chosen,) = random.choices(steps, _SHARES)
        if chosen() is False:
            coder.list()

    def _behind(self) -> bool:
        """Whether the session is smaller than it should be by now."""
        return self.coder.tokens < self.most * self.coder.call / self.calls

    def _status_of_fact(self) -> None:
        fact = self._fact("result")
        self.coder.status(f"{fact.key}: {fact.value}")
        self.facts[-1] = replace(fact, call=self.coder.call)  # behind the call that showed it

    def _file(self, fault: MadeFault) -> None:
        package = fault.path.split("/")[1]
        name = self.repository.vocabularies[package].module()
        path = self.random.choice((f"docs/{name}.md", f"scripts/{name}.py", f"notes/{name}.txt"))
        lines = [
            f"# {self.coder.name()}: {self.coder.name()}" for _ in range(self.random.randint(3, 25))
        ]
        self.coder.write(path, lines)

    def _answer(self, turn: int, turns: int) -> None:
        """The last words of a turn: what was done, and sometimes a question."""
        coder, random = self.coder, self.random
        lines = [
            f"Done: `{coder.name()}` in {coder.name()} was the cause.",
            f"I also changed {coder.name()}.",
        ]
        if random.random() < 0.6 or turn == turns - 2:  # noqa: PLR2004
            text = random.choice(sayings.ASKED).format(coder.name(), coder.name())
            lines.append(f"Open question: {text}")
            self.obligations.append(Obligation(coder.call + 1, "question", text))
        coder.take(ModelSaid((Text("\n".join(lines)),)))

    def _answered(self) -> list[str]:
        """An answer to a question of an earlier turn, sometimes."""
        for at, one in enumerate(self.obligations):
            if one.kind == "question" and one.until is None and self.random.random() < 0.4:  # noqa: PLR2004
                self.obligations[at] = replace(one, until=self.coder.call)
                return [f"You asked: {one.text} Yes, that is fine."]
        return []

    # The list of tasks.

    def _list(self, tasks: Sequence[str]) -> None:
        """New tasks; of what is left from earlier turns the newest few stay, the rest is done."""
        later = f"{self.random.choice(('document', 'measure', 'simplify'))} `{self.coder.name()}`"
        done, self.tasks = self.tasks[:-_CARRIED], self.tasks[-_CARRIED:]
        new = [task for task in (*tasks, later) if task not in self.tasks]
        self.tasks += new
        self._close(done)
        self.obligations += [Obligation(self.coder.call, "todo", task) for task in new]

    def _tick(self, task: str) -> None:
        if task in self.tasks:
            self.tasks.remove(task)
            self._close((task,))

    def _close(self, done: Sequence[str]) -> None:
        self._show(*done)
        for at, one in enumerate(self.obligations):
            if one.text in done and one.until is None:
                self.obligations[at] = replace(one, until=self.coder.call)

    def _show(self, *closed: str) -> None:
        """Write the whole list down: by its tool, or as text before some other call."""
        if self.listed:
            marks = [
                *(f"- [x] {task}" for task in closed),
                *(f"- [ ] {task}" for task in self.tasks),
            ]
            self.coder.step("\n".join(("Tasks:", *marks)), self._status())
            return
        todos = [{"content": task, "status": "completed"} for task in closed]
        states = ("in_progress", *("pending" for _ in self.tasks))
        todos += [
            {"content": task, "status": state}
            for task, state in zip(self.tasks, states, strict=False)
        ]
        self.coder.step("", MadeCall("todo_write", {"todos": todos}, "The list is kept."))

    def _status(self) -> MadeCall:
        changed = dict.fromkeys(path for path, _, _ in self.coder.changed)
        told = "\n".join(f" M {path}" for path in changed) or "nothing to commit"
        return MadeCall("bash", {"command": "git status --short"}, told)

    # Things to be planted.

    def _fact(self, by: By) -> Planted:
        kind = self.random.choice(KINDS)
        key = self.random.choice(sayings.KEYS).format(*self._nouns(2))
        while any(fact.key == key for fact in self.facts):
            key = f"second {key}"
        fact = Planted(self.coder.call, kind, key, self._value(kind), by)
        self.facts.append(fact)
        return fact

    def _value(self, kind: FactKind) -> str:
        value = sayings.value(kind, self.random, *self._nouns(2))
        if value in self.values:
            return self._value(kind)
        self.values.add(value)
        return value

    def _nouns(self, number: int) -> list[str]:
        words = self.random.choice(list(self.repository.vocabularies.values())).nouns
        return self.random.sample(words, number)

    def _pasted(self) -> list[str]:
        names = [fault.function for fault in self.repository.faults]
        return [
            f"12:{n // 60:02}:{n % 60:02} {self.random.choice(('INFO', 'INFO', 'WARN'))} "
            f"{self.random.choice(names)} took {self.random.randint(1, 9_999)} ms "
            f"id={self.random.getrandbits(32):08x}"
            for n in range(self.random.randint(20, 70))
        ]


def _opening(repository: Repository) -> Iterator[Event]:
    yield Opened(_MODEL)
    tree = "\n".join(f"- src/{name}/, tests/{name}/" for name in repository.vocabularies)
    words = sayings.SYSTEM.format(root=repository.root, tree=tree)
    yield Instructed((Text(words),), sayings.tools())
