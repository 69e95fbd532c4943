"""The hands of a made-up coding agent: edits, new files, moves, and what goes wrong with them.

Knows what each does to the files, and what a tool answers. Refuses to know why: that is the task's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from foldline.lab.made.coder import Coder, MadeCall
from foldline.lab.made.repository import MadeFault, block, functions


@dataclass(slots=True)
class Editor(Coder):
    """A coding agent that changes things."""

    spare: list[str] = field(default_factory=list[str])
    """Files of its own making, which it may move or remove."""
    removed: list[str] = field(default_factory=list[str])

    def repair(self, fault: MadeFault) -> None:
        """Put the right line for the wrong one, in a text as long as is needed to be alone."""
        whole = block(self.repository.files[fault.path], fault.function)
        lines = whole.splitlines()
        old = "\n".join(lines[-self.random.randint(2, max(min(6, len(lines)), 2)) :])
        self.meet(fault.function, fault.path)
        self.edit(fault.path, old, old.replace(fault.wrong, fault.right))

    def edit(self, path: str, old: str, new: str) -> bool:
        """Change a text that it has seen; what stands twice is refused, as editors do."""
        given = {"path": self._path(path), "old_text": old, "new_text": new}
        texts = ("The sign in {0} is wrong.", "Changing {0}, as `{1}` expects it.", "")
        if old not in self.seen.get(path, "") or not self.repository.replace(path, old, new):
            return False
        self.seen[path] = self.seen[path].replace(old, new)
        self.changed.append((path, old, new))
        told = f"Edited {path}: 1 replacement."
        self.step(
            self._words(*texts, of=path),
            MadeCall("edit_file", given, told, touches=((path, "written"),)),
        )
        return True

    def miss(self, path: str, old: str) -> None:
        """An edit that fails: the text is not as it stands."""
        given = {"path": self._path(path), "old_text": f"{old}  # was", "new_text": old}
        told = f"error: old_text was not found in {path}"
        self.step(
            self._words("Changing {0}.", of=path), MadeCall("edit_file", given, told, ok=False)
        )

    def revise(self, *, far: bool) -> bool:
        """Edit a function of a file that was read in this task, or from memory, long ago."""
        here = {*self.names[-1]}
        known = [path for path in self.seen if path.startswith("src/") and path in here]
        if far:
            known = [path for path in self.seen if path.startswith("src/") and path not in known]
        drawn = self.random.sample(known, min(len(known), 4))
        for path in drawn if far else known[:-4:-1]:  # near: what was read last
            names = functions(self.seen[path])
            if not names:
                continue
            name = self.random.choice(names)
            lines = block(self.seen[path], name).splitlines()[: self.random.randint(3, 8)]
            if len(lines) < 3:  # noqa: PLR2004 - a function of which only the head was read
                continue
            other = f"    # see {self.name()}: {self.random.choice(names)} relies on it"
            self.meet(name, path)
            return self.edit(path, "\n".join(lines), "\n".join((*lines, other)))
        return False

    def write(self, path: str, lines: Sequence[str]) -> None:
        """Make a file of its own."""
        content = "\n".join(lines) + "\n"
        self.repository.files[path] = self.seen[path] = content
        self.spare.append(path)
        self.meet(path)
        if self.random.random() < 0.4:  # noqa: PLR2004
            folder = path.rpartition("/")[0]
            command = f"mkdir -p {folder} && cat > {path} <<'EOF'\n{content}EOF"
            act = self._shell(command, "", (path, "written"))
        else:
            told = f"Wrote {len(content)} bytes to {path}."
            given = {"path": self._path(path), "content": content}
            act = MadeCall("write_file", given, told, touches=((path, "written"),))
        self.step(self._words("Writing {0}.", "", of=path), act)

    def tidy(self) -> bool:
        """Move or remove a file of its own, or fail to."""
        if not self.spare:
            return False
        path = self.spare.pop(self.random.randrange(len(self.spare)))
        if self.random.random() < 0.3:  # noqa: PLR2004
            gone = f"{path}.bak"
            told = f"rm: cannot remove '{gone}': No such file or directory\n[exit code 1]"
            self.step("", self._shell(f"rm {gone}", told)._replace(ok=False))
        content = self.repository.files.pop(path)
        self.seen.pop(path, None)
        self.removed.append(path)
        if self.random.random() < 0.5:  # noqa: PLR2004
            command = self.random.choice((f"rm {path}", f"git rm -q {path}", f"rm -f ./{path}"))
            self.step(self._words("No longer needed."), self._shell(command, "", (path, "removed")))
            return True
        folder, _, last = path.rpartition("/")
        to = f"{folder}/kept_{last}"
        self.repository.files[to] = self.seen[to] = content
        command = self.random.choice(
            (f"git mv {path} {to}", f"cd {folder} && mv {last} kept_{last}")
        )
        self.step("", self._shell(command, "", (path, "removed"), (to, "written")))
        self.meet(to)
        return True

    def number(self) -> bool:
        """Change a constant in place, by the shell."""
        for path in self.random.sample(sorted(self.seen), len(self.seen)):
            found = [
                line
                for line in self.seen[path].splitlines()
                if line[:1].isupper() and " = " in line
            ]
            if not found or not path.startswith("src/"):
                continue
            old, new = (
                found[0],
                f"{found[0].partition(' = ')[0]} = {self.random.randint(10, 99_999)}",
            )
            if self.repository.replace(path, old, new):
                self.seen[path] = self.seen[path].replace(old, new)
                self.changed.append((path, old, new))
                command = f"sed -i 's/^{old}$/{new}/' {path}"
                self.step(
                    self._words("A larger bound."), self._shell(command, "", (path, "written"))
                )
                return True
        return False

    def check(self) -> bool:
        """Look once more at what was changed last."""
        if not self.changed or self.changed[-1][0] not in self.repository.files:
            return False
        path, _, new = self.changed[-1]
        content = self.repository.files[path]
        first = content[: content.find(new)].count("\n") if new in content else 0
        shown = content.splitlines()[max(first - 5, 0) : first + 25]
        command = f"sed -n '{max(first - 4, 1)},{first + 25}p' {path}"
        self.step("", self._shell(command, "\n".join(shown), (path, "read")))
        return True

    def stumble(self) -> bool:
        """A call that fails, on a file that was only read or is not there: nothing is touched."""
        written = {path for path, _, _ in self.changed}
        known = [path for path in self.seen if path not in written and path.startswith("src/")]
        gone = f"{self.random.choice(sorted(self.repository.vocabularies))}/{self.name()}.cfg"
        missing = f"{gone}: No such file or directory\n[exit code 1]"
        draw = self.random.random()
        if known and draw < 0.5:  # noqa: PLR2004
            path = self.random.choice(known)
            lines = [line for line in self.seen[path].splitlines() if line.startswith("    ")]
            self.miss(path, self.random.choice(lines or ["    pass"]))
        elif draw < 0.75:  # noqa: PLR2004
            self.step("", self._shell(f"cat {gone}", f"cat: {missing}")._replace(ok=False))
        else:
            told = f"error: there is no file {gone}"
            self.step("", MadeCall("read_file", {"path": self._path(gone)}, told, ok=False))
        return True

    def again(self) -> bool:
        """Make a file anew that was removed."""
        if not self.removed:
            return False
        self.write(self.removed.pop(), [f"# {self.name()}, once more", f"# {self.name()}"])
        return True
