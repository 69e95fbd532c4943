"""A made-up coding agent: what it looks at, and what it may write again.

Knows the steps of such work, and that names and lines it writes must be ones it has seen: mostly of
the task in hand, some from long ago. Refuses to know tasks and what users say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import msgspec

from foldline.core.log import Event, ModelSaid, ToolReturned
from foldline.core.parts import Call, Text
from foldline.core.tokens import count_tokens
from foldline.lab.recorded import estimate_event_tokens
from made.repository import (
    MadeFault,
    Repository,
    extract_function,
    list_function_names,
)
from made.truth import FileTouch, State

_LARGEST = 5_800  # tokens of a file that is read in one go
_NEWEST, _RECENT, _OLDER = 0.5, 0.84, 0.94  # of names drawn: the newest, of this task, of the last
_PARALLEL = 0.18


class MadeCall(NamedTuple):
    """One call, and what came of it."""

    tool: str
    given: Mapping[str, object]
    result: str
    ok: bool = True
    touches: tuple[tuple[str, State], ...] = ()


@dataclass(slots=True)
class Coder:
    """An agent at work; `events` grow with every step."""

    random: Random
    repository: Repository
    absolute: bool
    """Whether it names files by their whole paths, where a tool takes one."""
    events: list[Event]
    call: int = 0
    """Answers so far: the number of the next one."""
    tokens: int = 0
    touches: list[FileTouch] = field(default_factory=list[FileTouch])
    seen: dict[str, str] = field(default_factory=dict[str, str])
    """What it knows of files: as read, with its own changes since."""
    names: list[list[str]] = field(default_factory=lambda: [[]])
    """Names met, task by task."""
    changed: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """The edits since the last commit: file, old text, new text."""

    def add_event(self, event: Event) -> None:
        """Let something happen."""
        self.events.append(event)
        self.tokens += estimate_event_tokens(event)
        self.call += isinstance(event, ModelSaid)

    def add_step(self, text: str, *acts: MadeCall) -> None:
        """An answer with its calls, and their results."""
        first = len(self.events)
        calls = [
            Call(f"call_{first}_{n}", act.tool, msgspec.json.encode(act.given).decode())
            for n, act in enumerate(acts)
        ]
        self.add_event(ModelSaid((*([Text(text)] if text else []), *calls)))
        for call, act in zip(calls, acts, strict=True):
            self.add_event(ToolReturned(call.id, (Text(act.result),), ok=act.ok))
            self.touches += [FileTouch(self.call, path, state) for path, state in act.touches]

    def choose_name(self) -> str:
        """A name it has met: mostly lately."""
        draw = self.random.random()
        if draw > _OLDER and len(self.names) > 1:
            pool = self.random.choice(self.names[:-1])
        elif draw > _RECENT and len(self.names) > 1:
            pool = self.names[-2]
        else:
            pool = self.names[-1][-10 if draw < _NEWEST else -40 :]
        return self.random.choice(pool or [next(iter(self.repository.files))])

    def remember_names(self, *names: str) -> None:
        """Names that may be written from now on."""
        self.names[-1] += names

    def has_seen_function(self, fault: MadeFault) -> bool:
        """Whether it has seen the whole function that a fault is in."""
        content = self.repository.files[fault.path]
        return extract_function(content, fault.function) in self.seen.get(fault.path, "")

    def read_file(self, path: str, *, near: str = "") -> None:
        """Read a file, or its part around a function; sometimes others beside it."""
        acts = [self._make_read_call(path, near)]
        if self.random.random() < _PARALLEL:
            others = [one for one in self._list_neighbours(path) if one not in self.seen]
            acts += [self._make_read_call(one) for one in others[: self.random.randint(1, 2)]]
        self.add_step(
            self._choose_text(
                "Reading {0}.", "Let me look at {0} before I change `{1}`.", "", of=path
            ),
            *acts,
        )

    def _make_read_call(self, path: str, near: str = "") -> MadeCall:
        content = self.repository.files[path]
        self.remember_names(path, *list_function_names(content)[:12])
        if count_tokens(content) > _LARGEST or self.random.random() < 0.15:
            return self._make_partial_read(path, content, near)
        self.seen.pop(path, None)  # the one read last stands last
        self.seen[path] = content
        if self.random.random() < 0.25:
            folder, _, name = path.rpartition("/")
            commands = [f"cat {path}", f"cat -- {path}"]
            commands += [f"cd {folder} && cat {name}"] if folder else []
            return self._make_shell_call(self.random.choice(commands), content, (path, "read"))
        return MadeCall(
            "read_file", {"path": self._format_path(path)}, content, touches=((path, "read"),)
        )

    def _make_partial_read(self, path: str, content: str, near: str) -> MadeCall:
        lines = content.splitlines()
        length = min(len(lines), self.random.randint(60, 160))
        first = self.random.randint(0, len(lines) - length)
        if near:
            first = max(lines.index(extract_function(content, near).split("\n")[0]) - 10, 0)
        shown = "\n".join(lines[first : first + length])
        if self.seen.get(path) != content:
            self.seen[path] = shown
        if self.random.random() < 0.5:
            command = f"sed -n '{first + 1},{first + length}p' {path}"
            return self._make_shell_call(command, shown, (path, "read"))
        given = {"path": self._format_path(path), "offset": first + 1, "limit": length}
        return MadeCall("read_file", given, shown, touches=((path, "read"),))

    def _list_neighbours(self, path: str) -> list[str]:
        folder = path.rpartition("/")[0]
        found = [one for one in sorted(self.repository.files) if one.startswith(f"{folder}/")]
        return self.random.sample(found, len(found))

    def search_name(self, name: str) -> None:
        """Look for a name: everywhere, or in one file."""
        found = self.repository.render_matches(name)
        self.remember_names(*(line.split(":", 1)[0] for line in found.splitlines()[:6]))
        path = next((p for p, text in self.seen.items() if name in text), "")
        content = self.repository.files.get(path, "")
        if path and name in content and self.random.random() < 0.3:
            lines = enumerate(content.splitlines(), 1)
            shown = "\n".join(f"{n}:{line}" for n, line in lines if name in line)
            act = self._make_shell_call(f'grep -n "{name}" {path}', shown, (path, "read"))
        elif self.random.random() < 0.5:
            act = MadeCall("search", {"pattern": name, "path": "."}, found or "no matches")
        else:
            act = self._make_shell_call(
                f'grep -rn "{name}" . --include=*.py', found or "[exit code 1]"
            )
            act = act._replace(ok=bool(found))
        self.add_step(
            self._choose_text("Where is `{0}` used?", "Checking callers of `{0}`.", "", of=name),
            act,
        )

    def list_folder(self) -> None:
        """List a folder."""
        under = self.random.choice(("src/", "tests/")) + self.random.choice(
            (*self.repository.vocabularies, "")
        )
        found = self.repository.render_listing(under)
        self.remember_names(*found.splitlines()[-5:])
        if self.random.random() < 0.5:
            self.add_step(
                self._choose_text("", "Listing the files."),
                MadeCall("list_files", {"path": under}, found),
            )
        else:
            self.add_step("", self._make_shell_call(f"find {under} -name '*.py' | sort", found))

    def run_tests(self, *places: str) -> None:
        """Run tests."""
        told = self.repository.render_test_run(places)
        failed = bool(self.repository.list_open_faults(places))
        self.remember_names(
            *(fault.function for fault in self.repository.list_open_faults(places)[:4])
        )
        command = f"python -m pytest {' '.join(places)}".strip()
        result = f"{told}\n[exit code {int(failed)}]"
        texts = ("Running the tests.", "Now the tests of `{1}`.", "")
        self.add_step(
            self._choose_text(*texts),
            self._make_shell_call(command, result)._replace(ok=not failed),
        )

    def show_changes(self) -> None:
        """What was changed since the last commit; or what was committed."""
        if self.changed and self.random.random() < 0.6:
            lines: list[str] = []
            for path, old, new in self.changed[-6:]:
                lines += [f"diff --git a/{path} b/{path}", f"--- a/{path}", f"+++ b/{path}", "@@"]
                lines += [
                    *(f"-{one}" for one in old.split("\n")),
                    *(f"+{one}" for one in new.split("\n")),
                ]
            self.add_step("", self._make_shell_call("git diff", "\n".join(lines)))
            return
        hashes = [f"{self.random.getrandbits(28):07x}" for _ in range(self.random.randint(6, 18))]
        self.remember_names(*hashes[:2])
        self.changed = []
        log = "\n".join(f"{one} {self.choose_name()}: {self.choose_name()}" for one in hashes)
        self.add_step("", self._make_shell_call("git log --oneline -n 20", log))

    def run_status_command(self, line: str) -> None:
        """A command that prints much, and in it one line that is to be remembered."""
        lines = [
            f"{self.choose_name()} {self.random.randint(1, 9_999)} ms "
            f"[{self.random.getrandbits(32):08x}]"
            for _ in range(self.random.randint(4, 22))
        ]
        lines.insert(self.random.randrange(len(lines)), line)
        command = self.random.choice(("make status", "./bin/report --last", "make -s health"))
        self.add_step(
            self._choose_text("Checking the state of things.", ""),
            self._make_shell_call(command, "\n".join(lines)),
        )

    def _make_shell_call(self, command: str, result: str, *touches: tuple[str, State]) -> MadeCall:
        return MadeCall("bash", {"command": command}, result, touches=touches)

    def _format_path(self, path: str) -> str:
        return f"{self.repository.root}/{path}" if self.absolute else path

    def _choose_text(self, *texts: str, of: str = "") -> str:
        """One of some texts, on a thing and a name that was met before."""
        return self.random.choice(texts).format(of or self.choose_name(), self.choose_name())
