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
from foldline.lab.recorded import Recorded
from made import sayings
from made.coder import MadeCall
from made.editor import Editor
from made.repository import MadeFault, Repository, generate_repository
from made.truth import (
    KINDS,
    By,
    Constraint,
    Correction,
    FactKind,
    Obligation,
    Planted,
    Truth,
)

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


def generate_coding_session(seed: int, *, calls: int = 200, tokens: int = 120_000) -> Generated:
    """A coding agent's session of about so many calls and tokens."""
    random = Random(seed)
    return _DraftSession(random, calls, tokens).generate_session(f"coding {seed}")


class _DraftSession:
    """A session in the making."""

    def __init__(self, random: Random, calls: int, tokens: int) -> None:
        self.random, self.calls, self.most = random, calls, tokens
        self.repository = generate_repository(random)
        self.coder = Editor(random, self.repository, absolute=random.random() < 0.5, events=[])
        self.listed = random.random() < 0.5
        self.tasks: list[str] = []
        """What is open on the list."""
        self.facts: list[Planted] = []
        self.rules: list[Constraint] = []
        self.stated: dict[str, str] = {}
        """By key: values that are yet to be corrected."""
        self.corrections: list[Correction] = []
        self.obligations: list[Obligation] = []
        self.values: set[str] = set()

    def generate_session(self, name: str) -> Generated:
        """All turns."""
        for event in _iterate_opening_events(self.repository):
            self.coder.add_event(event)
        turns = max(min(self.random.randint(6, 10), self.calls // 20), 1)
        rules = self.random.sample(sayings.RULES, min(len(sayings.RULES), 6))
        for turn in range(turns):
            self.generate_turn(turn, turns, rules[turn::turns])
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

    def generate_turn(self, turn: int, turns: int, rules: Sequence[str]) -> None:
        """A task: the user's words, the work, and the answer."""
        end = self.calls * (turn + 1) // turns
        faults = self._choose_faults()
        self.coder.names.append([])
        self.coder.remember_names(
            *(fault.function for fault in faults), *(fault.path for fault in faults)
        )
        self._add_user_message(turn, faults[0], rules, last=turn == turns - 1)
        self._add_tasks([f"make {fault.test} pass" for fault in faults])
        work = self._iterate_steps(faults)
        while self.coder.call < end - 1 and next(work, None) is not None:
            pass
        self._add_final_answer(turn, turns)

    def _choose_faults(self) -> list[MadeFault]:
        """The faults of one module first, then others of its package."""
        standing = self.repository.list_open_faults() or self.repository.faults
        first = self.random.choice(standing)
        package = first.path.rpartition("/")[0]
        near = [one for one in standing if one.path.startswith(package) and one is not first]
        near.sort(key=lambda one: one.path != first.path)
        return [first, *near[:3]]

    def _add_user_message(
        self, turn: int, fault: MadeFault, rules: Sequence[str], *, last: bool
    ) -> None:
        coder, random = self.coder, self.random
        lines = [random.choice(sayings.TASKS).format(fault.place, fault.function)]
        for rule in rules:
            text = rule.format(*self._choose_nouns(2), fault.function, random.randint(2_000, 9_999))
            self.rules.append(Constraint(coder.call, text))
            lines.append(text)
        if turn == 1:  # a log that somebody pasted, with a sentence behind it
            lines += ["This is what it printed:", "```", *self._make_pasted_log(), "```"]
        for _ in range(random.randint(1, 2)):
            fact = self._add_fact("user")
            lines.append(f"For the record, the {fact.key} is {fact.value}.")
        said = self._make_correction_lines(turn, last=last)
        lines += said
        lines += self._answer_open_question()
        coder.add_event(UserSaid((Text("\n".join(lines)),)))
        if said:
            told = said[-1].rpartition(": ")[2]  # of a correction, what holds now
            coder.add_step(f"Noted: {told[0].lower()}{told[1:]}", self._make_status_call())

    def _make_correction_lines(self, turn: int, *, last: bool) -> list[str]:
        """A value that will be corrected; or the correction of one, two turns later."""
        if turn < len(sayings.CORRECTED):
            key, old = (
                sayings.CORRECTED[turn].format(self._choose_nouns(1)[0]),
                self._make_unique_value("code"),
            )
            self.stated[key] = old
            return [f"The {key} is {old}."]
        if not self.stated or (turn % 2 and not last):
            return []
        key = next(iter(self.stated))
        old, new = self.stated.pop(key), self._make_unique_value("code")
        self.corrections.append(Correction(self.coder.call, key, old, new))
        return [f"The {key} is no longer {old}: the {key} is {new}."]

    def _iterate_steps(self, faults: Sequence[MadeFault]) -> Iterator[bool]:
        """Step by step, as long as somebody asks."""
        coder, random = self.coder, self.random
        coder.list_folder()
        yield True
        if random.random() < _FILES and coder.tidy_own_file():
            yield True
        if random.random() < _FILES:
            self._write_own_file(faults[0])
            yield True
        for fault in faults:
            coder.run_tests(fault.place)
            yield True
            for _ in self._inspect_fault(fault):
                yield True
            if fault.wrong in self.repository.files[fault.path]:
                if not coder.has_seen_function(fault):
                    coder.read_file(fault.path, near=fault.function)
                    yield True
                if random.random() < 0.15:
                    coder.try_failing_edit(fault.path, fault.wrong)
                    yield True
                coder.repair_fault(fault)
                yield True
                if random.random() < 0.4 and coder.read_last_change():
                    yield True
                coder.run_tests(fault.place)
                yield True
            self._complete_task(f"make {fault.test} pass")
            yield True
            self._status_of_fact()
            yield True
            for number in range(random.randint(1, 3)):
                self._run_side_step(fault, small=not number)
                yield True
        while True:
            self._run_side_step(faults[0])
            yield True

    def _inspect_fault(self, fault: MadeFault) -> Iterator[bool]:
        coder = self.coder
        coder.search_name(fault.function)
        yield True
        for path in (fault.path, fault.place):
            if path not in coder.seen or (self._is_behind_size() and self.random.random() < _LARGE):
                coder.read_file(path)
                yield True

    def _run_side_step(self, fault: MadeFault, *, small: bool = False) -> None:
        """Something else: large while the session is behind its size, small while it is ahead."""
        coder, random = self.coder, self.random
        if not small and self._is_behind_size() and random.random() < _LARGE:
            package = fault.path.rpartition("/")[0]
            files = sorted(self.repository.files)
            near = [path for path in files if path.startswith(package)]
            coder.read_file(random.choice(random.choice((near, near, files))))
            return
        steps = (
            lambda: coder.edit_function(far=False),
            lambda: coder.edit_function(far=True),
            lambda: coder.search_name(coder.choose_name().rpartition("/")[2].removesuffix(".py")),
            coder.show_changes,
            lambda: self._write_own_file(fault),
            coder.tidy_own_file,
            coder.change_constant,
            coder.read_last_change,
            coder.make_failing_call,
            coder.restore_removed_file,
            self._status_of_fact,
            lambda: coder.run_tests(fault.place),
        )
        (chosen,) = random.choices(steps, _SHARES)
        if chosen() is False:
            coder.list_folder()

    def _is_behind_size(self) -> bool:
        """Whether the session is smaller than it should be by now."""
        return self.coder.tokens < self.most * self.coder.call / self.calls

    def _status_of_fact(self) -> None:
        fact = self._add_fact("result")
        self.coder.run_status_command(f"{fact.key}: {fact.value}")
        self.facts[-1] = replace(fact, call=self.coder.call)  # behind the call that showed it

    def _write_own_file(self, fault: MadeFault) -> None:
        package = fault.path.split("/")[1]
        name = self.repository.vocabularies[package].make_module_name()
        path = self.random.choice((f"docs/{name}.md", f"scripts/{name}.py", f"notes/{name}.txt"))
        lines = [
            f"# {self.coder.choose_name()}: {self.coder.choose_name()}"
            for _ in range(self.random.randint(3, 25))
        ]
        self.coder.write_file(path, lines)

    def _add_final_answer(self, turn: int, turns: int) -> None:
        """The last words of a turn: what was done, and sometimes a question."""
        coder, random = self.coder, self.random
        lines = [
            f"Done: `{coder.choose_name()}` in {coder.choose_name()} was the cause.",
            f"I also changed {coder.choose_name()}.",
        ]
        if random.random() < 0.6 or turn == turns - 2:
            text = random.choice(sayings.ASKED).format(coder.choose_name(), coder.choose_name())
            lines.append(f"Open question: {text}")
            self.obligations.append(Obligation(coder.call + 1, "question", text))
        coder.add_event(ModelSaid((Text("\n".join(lines)),)))

    def _answer_open_question(self) -> list[str]:
        """An answer to a question of an earlier turn, sometimes."""
        for at, one in enumerate(self.obligations):
            if one.kind == "question" and one.until is None and self.random.random() < 0.4:
                self.obligations[at] = replace(one, until=self.coder.call)
                return [f"You asked: {one.text} Yes, that is fine."]
        return []

    # The list of tasks.

    def _add_tasks(self, tasks: Sequence[str]) -> None:
        """New tasks; of what is left from earlier turns the newest few stay, the rest is done."""
        later = (
            f"{self.random.choice(('document', 'measure', 'simplify'))} "
            f"`{self.coder.choose_name()}`"
        )
        done, self.tasks = self.tasks[:-_CARRIED], self.tasks[-_CARRIED:]
        new = [task for task in (*tasks, later) if task not in self.tasks]
        self.tasks += new
        self._close_tasks(done)
        self.obligations += [Obligation(self.coder.call, "todo", task) for task in new]

    def _complete_task(self, task: str) -> None:
        if task in self.tasks:
            self.tasks.remove(task)
            self._close_tasks((task,))

    def _close_tasks(self, done: Sequence[str]) -> None:
        self._write_task_list(*done)
        for at, one in enumerate(self.obligations):
            if one.text in done and one.until is None:
                self.obligations[at] = replace(one, until=self.coder.call)

    def _write_task_list(self, *closed: str) -> None:
        """Write the whole list down: by its tool, or as text before some other call."""
        if self.listed:
            marks = [
                *(f"- [x] {task}" for task in closed),
                *(f"- [ ] {task}" for task in self.tasks),
            ]
            self.coder.add_step("\n".join(("Tasks:", *marks)), self._make_status_call())
            return
        todos = [{"content": task, "status": "completed"} for task in closed]
        states = ("in_progress", *("pending" for _ in self.tasks))
        todos += [
            {"content": task, "status": state}
            for task, state in zip(self.tasks, states, strict=False)
        ]
        self.coder.add_step("", MadeCall("todo_write", {"todos": todos}, "The list is kept."))

    def _make_status_call(self) -> MadeCall:
        changed = dict.fromkeys(path for path, _, _ in self.coder.changed)
        told = "\n".join(f" M {path}" for path in changed) or "nothing to commit"
        return MadeCall("bash", {"command": "git status --short"}, told)

    # Things to be planted.

    def _add_fact(self, by: By) -> Planted:
        kind = self.random.choice(KINDS)
        key = self.random.choice(sayings.KEYS).format(*self._choose_nouns(2))
        while any(fact.key == key for fact in self.facts):
            key = f"second {key}"
        fact = Planted(self.coder.call, kind, key, self._make_unique_value(kind), by)
        self.facts.append(fact)
        return fact

    def _make_unique_value(self, kind: FactKind) -> str:
        value = sayings.make_fact_value(kind, self.random, *self._choose_nouns(2))
        if value in self.values:
            return self._make_unique_value(kind)
        self.values.add(value)
        return value

    def _choose_nouns(self, number: int) -> list[str]:
        words = self.random.choice(list(self.repository.vocabularies.values())).nouns
        return self.random.sample(words, number)

    def _make_pasted_log(self) -> list[str]:
        names = [fault.function for fault in self.repository.faults]
        return [
            f"12:{n // 60:02}:{n % 60:02} {self.random.choice(('INFO', 'INFO', 'WARN'))} "
            f"{self.random.choice(names)} took {self.random.randint(1, 9_999)} ms "
            f"id={self.random.getrandbits(32):08x}"
            for n in range(self.random.randint(20, 70))
        ]


def _iterate_opening_events(repository: Repository) -> Iterator[Event]:
    yield Opened(_MODEL)
    tree = "\n".join(f"- src/{name}/, tests/{name}/" for name in repository.vocabularies)
    words = sayings.SYSTEM.format(root=repository.root, tree=tree)
    yield Instructed((Text(words),), sayings.make_agent_tools())
