"""The hands of a made-up coding agent: edits, new files, moves, and what goes wrong with them.

Knows what each does to the files, and what a tool answers. Refuses to know why: that is the task's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from made.coder import Coder, MadeCall
from made.repository import MadeFault, extract_function, list_function_names


@dataclass(slots=True)
class Editor(Coder):
    """A coding agent that changes things."""

    spare: list[str] = field(default_factory=list[str])
    """Files of its own making, which it may move or remove."""
    removed: list[str] = field(default_factory=list[str])

    def repair_fault(self, fault: MadeFault) -> None:
        """Put the right line for the wrong one, in a text as long as is needed to be alone."""
        whole = extract_function(self.repository.files[fault.path], fault.function)
        lines = whole.splitlines()
        old = "\n".join(lines[-self.random.randint(2, max(min(6, len(lines)), 2)) :])
        self.remember_names(fault.function, fault.path)
        self.edit_file(fault.path, old, old.replace(fault.wrong, fault.right))

    def edit_file(self, path: str, old: str, new: str) -> bool:
        """Change a text that it has seen; what stands twice is refused, as editors do."""
        given = {"path": self._format_path(path), "old_text": old, "new_text": new}
        texts = ("The sign in {0} is wrong.", "Changing {0}, as `{1}` expects it.", "")
        if old not in self.seen.get(path, "") or not self.repository.replace_text(path, old, new):
            return False
        self.seen[path] = self.seen[path].replace(old, new)
        self.changed.append((path, old, new))
        told = f"Edited {path}: 1 replacement."
        self.add_step(
            self._choose_text(*texts, of=path),
            MadeCall("edit_file", given, told, touches=((path, "written"),)),
        )
        return True

    def try_failing_edit(self, path: str, old: str) -> None:
        """An edit that fails: the text is not as it stands."""
        given = {"path": self._format_path(path), "old_text": f"{old}  # was", "new_text": old}
        told = f"error: old_text was not found in {path}"
        self.add_step(
            self._choose_text("Changing {0}.", of=path),
            MadeCall("edit_file", given, told, ok=False),
        )

    def edit_function(self, *, far: bool) -> bool:
        """Edit a function of a file that was read in this task, or from memory, long ago."""
        here = {*self.names[-1]}
        known = [path for path in self.seen if path.startswith("src/") and path in here]
        if far:
            known = [path for path in self.seen if path.startswith("src/") and path not in known]
        drawn = self.random.sample(known, min(len(known), 4))
        for path in drawn if far else known[:-4:-1]:  # near: what was read last
            names = list_function_names(self.seen[path])
            if not names:
                continue
            name = self.random.choice(names)
            lines = extract_function(self.seen[path], name).splitlines()[
                : self.random.randint(3, 8)
            ]
            if len(lines) < 3:
                continue
            other = f"    # see {self.choose_name()}: {self.random.choice(names)} relies on it"
            self.remember_names(name, path)
            return self.edit_file(path, "\n".join(lines), "\n".join((*lines, other)))
        return False

    def write_file(self, path: str, lines: Sequence[str]) -> None:
        """Make a file of its own."""
        content = "\n".join(lines) + "\n"
        self.repository.files[path] = self.seen[path] = content
        self.spare.append(path)
        self.remember_names(path)
        if self.random.random() < 0.4:
            folder = path.rpartition("/")[0]
            command = f"mkdir -p {folder} && cat > {path} <<'EOF'\n{content}EOF"
            act = self._make_shell_call(command, "", (path, "written"))
        else:
            told = f"Wrote {len(content)} bytes to {path}."
            given = {"path": self._format_path(path), "content": content}
            act = MadeCall("write_file", given, told, touches=((path, "written"),))
        self.add_step(self._choose_text("Writing {0}.", "", of=path), act)

    def tidy_own_file(self) -> bool:
        """Move or remove a file of its own, or fail to."""
        if not self.spare:
            return False
        path = self.spare.pop(self.random.randrange(len(self.spare)))
        if self.random.random() < 0.3:
            gone = f"{path}.bak"
            told = f"rm: cannot remove '{gone}': No such file or directory\n[exit code 1]"
            self.add_step("", self._make_shell_call(f"rm {gone}", told)._replace(ok=False))
        content = self.repository.files.pop(path)
        self.seen.pop(path, None)
        self.removed.append(path)
        if self.random.random() < 0.5:
            command = self.random.choice((f"rm {path}", f"git rm -q {path}", f"rm -f ./{path}"))
            self.add_step(
                self._choose_text("No longer needed."),
                self._make_shell_call(command, "", (path, "removed")),
            )
            return True
        folder, _, last = path.rpartition("/")
        to = f"{folder}/kept_{last}"
        self.repository.files[to] = self.seen[to] = content
        command = self.random.choice(
            (f"git mv {path} {to}", f"cd {folder} && mv {last} kept_{last}")
        )
        self.add_step("", self._make_shell_call(command, "", (path, "removed"), (to, "written")))
        self.remember_names(to)
        return True

    def change_constant(self) -> bool:
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
            if self.repository.replace_text(path, old, new):
                self.seen[path] = self.seen[path].replace(old, new)
                self.changed.append((path, old, new))
                command = f"sed -i 's/^{old}$/{new}/' {path}"
                self.add_step(
                    self._choose_text("A larger bound."),
                    self._make_shell_call(command, "", (path, "written")),
                )
                return True
        return False

    def read_last_change(self) -> bool:
        """Look once more at what was changed last."""
        if not self.changed or self.changed[-1][0] not in self.repository.files:
            return False
        path, _, new = self.changed[-1]
        content = self.repository.files[path]
        first = content[: content.find(new)].count("\n") if new in content else 0
        shown = content.splitlines()[max(first - 5, 0) : first + 25]
        command = f"sed -n '{max(first - 4, 1)},{first + 25}p' {path}"
        self.add_step("", self._make_shell_call(command, "\n".join(shown), (path, "read")))
        return True

    def make_failing_call(self) -> bool:
        """A call that fails, on a file that was only read or is not there: nothing is touched."""
        written = {path for path, _, _ in self.changed}
        known = [path for path in self.seen if path not in written and path.startswith("src/")]
        gone = (
            f"{self.random.choice(sorted(self.repository.vocabularies))}/{self.choose_name()}.cfg"
        )
        missing = f"{gone}: No such file or directory\n[exit code 1]"
        draw = self.random.random()
        if known and draw < 0.5:
            path = self.random.choice(known)
            lines = [line for line in self.seen[path].splitlines() if line.startswith("    ")]
            self.try_failing_edit(path, self.random.choice(lines or ["    pass"]))
        elif draw < 0.75:
            self.add_step(
                "", self._make_shell_call(f"cat {gone}", f"cat: {missing}")._replace(ok=False)
            )
        else:
            told = f"error: there is no file {gone}"
            self.add_step(
                "", MadeCall("read_file", {"path": self._format_path(gone)}, told, ok=False)
            )
        return True

    def restore_removed_file(self) -> bool:
        """Make a file anew that was removed."""
        if not self.removed:
            return False
        self.write_file(
            self.removed.pop(), [f"# {self.choose_name()}, once more", f"# {self.choose_name()}"]
        )
        return True
