"""Checkpoints: what a turn changed in files is taken back exactly, and never somebody else's work."""

import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from foldline.agent import checkpoints
from foldline.agent.checkpoints import Checkpoints, describe_change
from foldline.agent.events import Asking
from foldline.agent.tools.edit_files import build_edit_tool, build_write_tool
from foldline.agent.tools.read_files import Root
from foldline.agent.tools.shell import build_shell_tool

pytestmark = pytest.mark.anyio
NAMES = ("a", "b", "d/a", "d/b", "d/e/a")
FOLDERS = ("d", "d/e", "f")


@pytest.fixture
def anyio_backend():
    return "asyncio"


def seen(root):
    """Everything below a folder, as it is."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[str(path.relative_to(root))] = ("link", 0, str(path.readlink()))
        elif path.is_dir():
            found[str(path.relative_to(root))] = ("folder", mode, "")
        else:
            found[str(path.relative_to(root))] = ("file", mode, path.read_bytes())
    return found


def change(root, how, name, other, content):
    """One thing that somebody does to files; what is impossible is not done."""
    path, to = root / name, root / other
    try:
        match how:
            case "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            case "remove":
                path.unlink()
            case "rename":
                path.rename(to)
            case "mode":
                path.chmod(0o600 if content < "m" else 0o755)
            case "link":
                path.symlink_to(other)
            case "folder":
                path.mkdir()
            case "tree":
                shutil.rmtree(path)
    except (OSError, shutil.Error):
        pass


WAYS = st.tuples(
    st.sampled_from(["write", "write", "write", "remove", "rename", "mode", "link", "folder", "tree"]),
    st.sampled_from((*NAMES, *NAMES, *FOLDERS)),
    st.sampled_from((*NAMES, *FOLDERS)),
    st.sampled_from(["", "one", "two", "zzz"]),
)  # fmt: skip
GONE = None


class Turns(RuleBasedStateMachine):
    """Tools and a person change the same files; the newest turn is taken back and made again."""

    def __init__(self):
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.root = self.base / "work"
        self.root.mkdir()
        self.points = Checkpoints(self.base / "kept", self.root)
        self.turns = []  # of each: the pairs of what was there before and after a tool
        self.undone = []
        self.turn = []

    def teardown(self):
        """Remove what was written."""
        shutil.rmtree(self.base)

    def _end_turn(self):
        if any(before != after for before, after in self.turn):
            self.turns.append(self.turn)
            self.undone = []
        self.turn = []

    @rule(ways=st.lists(WAYS, min_size=1, max_size=3))
    def tool(self, ways):
        """A call of a tool changes files."""
        before = seen(self.root)
        held = self.points.note_before([], whole=True)
        for way in ways:
            change(self.root, *way)
        self.points.note_after(held, [], whole=True)
        self.turn.append((before, seen(self.root)))

    @rule(way=WAYS)
    def person(self, way):
        """A person changes a file."""
        change(self.root, *way)

    @rule()
    def new_turn(self):
        """The next turn begins."""
        self.points.begin_turn(Asking(1))
        self._end_turn()

    @rule()
    def another_process(self):
        """The terminal is left, and opened again."""
        self.points.end_session()
        self._end_turn()
        self.points = Checkpoints(self.base / "kept", self.root)

    def _expected(self, turn):
        """What the turn changed: before it, after it, and whether somebody else came in between."""
        found = {}
        for before, after in turn:
            for name in before.keys() | after.keys():
                then, now = before.get(name, GONE), after.get(name, GONE)
                if then == now:
                    continue
                first, last, mixed = found.get(name, (then, then, False))
                found[name] = (first, now, mixed or last != then)
                if first == now and not found[name][2]:
                    del found[name]
        return found

    @rule()
    def undo(self):
        """Take back the newest turn."""
        self._end_turn()
        plan, now = self.points.plan_undo(), seen(self.root)
        # A turn whose changes cancel out is none.
        while self.turns and not self._expected(self.turns[-1]):
            self.turns.pop()
        assert (plan is None) == (not self.turns), (
            "there is a turn to take back if one changed files"
        )
        if plan is None:
            return
        turn = self._expected(self.turns[-1])
        named = {str(Path(one).relative_to(self.root.resolve())) for one in plan.conflicts}
        strangers = {
            name for name, (old, new, mixed) in turn.items()
            if now.get(name) != old and (now.get(name) != new or mixed)
        }  # fmt: skip
        assert strangers <= named, "what somebody else changed is never taken for ours"
        assert seen(self.root) == now, "planning changes nothing"
        if plan.conflicts or plan.lost:
            return
        assert self.points.restore_files(plan) == []
        then = seen(self.root)
        for name in now.keys() | then.keys() | turn.keys():
            if name in turn:
                old, new, _ = turn[name]
                left = new and new[0] == "folder" and old is None and any(
                    one.startswith(f"{name}/") for one in then
                )  # fmt: skip
                assert left or then.get(name) == old, name
            elif now.get(name) is None:
                assert then[name][0] == "folder", "a folder that a restored file needs"
            else:
                assert then.get(name) == now[name], f"{name} is none of the turn's"
        self.undone.append((self.turns.pop(), now, then))

    @precondition(lambda self: self.undone)
    @rule()
    def redo(self):
        """Make again what was taken back."""
        self._end_turn()
        if not self.undone:
            return
        plan = self.points.plan_redo()
        turn, _, after = self.undone[-1]
        assert plan is not None
        if plan.conflicts or plan.lost:
            assert seen(self.root) != after, "without another's change it can be made again"
            return
        same = seen(self.root) == after
        assert self.points.restore_files(plan) == []
        if same:
            then = seen(self.root)
            for name, (_, new, _) in self._expected(turn).items():
                assert then.get(name) == new, name
        self.undone.pop()
        self.turns.append([(seen(self.root), seen(self.root))] if not same else turn)
        if not same:
            self.points = Checkpoints(self.base / "kept2", self.root)
            self.turns, self.undone, self.turn = [], [], []

    @invariant()
    def it_could_keep_all(self):
        """Nothing failed."""
        assert self.points.fault == ""


TestTurns = Turns.TestCase
TestTurns.settings = settings(stateful_step_count=25, deadline=None)


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def tools(points, work):
    root = Root(work)
    made = [build_write_tool(root), build_edit_tool(root), build_shell_tool(root)]
    return {tool.name: points.watch_tool(tool) for tool in made}


async def test_the_tools_of_a_turn_are_taken_back_to_the_byte(work, tmp_path):
    """C-5: content, mode, creations, deletions and renames, by `write`, `edit` and commands."""
    (work / "run.sh").write_bytes(b"#!/bin/sh\r\necho \xff\n")
    (work / "run.sh").chmod(0o751)
    (work / "gone.txt").write_text("still here\n")
    (work / "old").mkdir(mode=0o700)
    (work / "old" / "name").write_text("x")
    (work / "to").symlink_to("gone.txt")
    before = seen(work)
    points = Checkpoints(tmp_path / "kept", work)
    found = tools(points, work)
    points.begin_turn(Asking(1))
    await found["write"].run({"path": "new/deep.txt", "content": "new\n"})
    await found["edit"].run({"path": "new/deep.txt", "old": "new", "new": "newer"})
    command = (
        "rm gone.txt to; mv old other; chmod 600 run.sh; printf x >> run.sh; ln -s a b; mkdir e"
    )
    assert (await found["shell"].run({"command": command})).ok
    after = seen(work)
    assert after != before
    plan = points.plan_undo()
    assert (plan.conflicts, plan.lost) == ((), ())
    assert points.restore_files(plan) == []
    assert seen(work) == before
    assert points.restore_files(points.plan_redo()) == []
    assert seen(work) == after


async def test_what_a_person_changed_since_is_named_and_left_alone(work, tmp_path):
    points = Checkpoints(tmp_path / "kept", work)
    found = tools(points, work)
    await found["write"].run({"path": "a.txt", "content": "one\n"})
    await found["write"].run({"path": "b.txt", "content": "one\n"})
    (work / "a.txt").write_text("mine\n")
    plan = points.plan_undo()
    assert [*plan.conflicts] == [str(work / "a.txt")]
    assert [describe_change(one, work) for one in plan.changes] == [
        "- a.txt (it was created)",
        "- b.txt (it was created)",
    ]
    assert (work / "a.txt").read_text() == "mine\n"


async def test_the_only_copy_of_a_large_file_is_never_removed(work, tmp_path, monkeypatch):
    """A command may have moved it, and what is not kept cannot come back."""
    monkeypatch.setattr(checkpoints, "LARGEST", 10)
    (work / "data").mkdir()
    (work / "data" / "big.bin").write_bytes(bytes(11))
    (work / "small").write_text("one")
    points = Checkpoints(tmp_path / "kept", work)
    shell = tools(points, work)["shell"]
    assert (await shell.run({"command": "mv data data2; mv small data2/small"})).ok
    plan = points.plan_undo()
    assert {*plan.lost} == {str(work / "data" / "big.bin"), str(work / "data2" / "big.bin")}
    assert points.restore_files(plan) == []
    assert (work / "data2" / "big.bin").read_bytes() == bytes(11)
    assert (work / "small").read_text() == "one"
    assert not (work / "data2" / "small").exists()


async def test_what_a_person_saves_while_asked_is_left_alone(work, tmp_path):
    for name in ("a", "b"):
        (work / name).write_text("old")
    points = Checkpoints(tmp_path / "kept", work)
    write = tools(points, work)["write"]
    for name in ("a", "b"):
        await write.run({"path": name, "content": "new"})
    plan = points.plan_undo()
    (work / "b").write_text("mine")
    assert points.restore_files(plan) == [f"{work / 'b'}: it was changed while you were asked"]
    assert ((work / "a").read_text(), (work / "b").read_text()) == ("old", "mine")


async def test_a_process_that_was_killed_during_a_command_leaves_a_checkpoint(work, tmp_path):
    (work / "a.txt").write_text("before\n")
    points = Checkpoints(tmp_path / "kept", work)
    points.note_before([], whole=True)
    (work / "a.txt").write_text("half")
    again = Checkpoints(tmp_path / "kept", work)
    plan = again.plan_undo()
    assert [*plan.conflicts] == [str(work / "a.txt")], "nobody knows who did it: it is asked about"
    assert again.restore_files(plan) == []
    assert (work / "a.txt").read_text() == "before\n"


async def test_a_link_that_leads_elsewhere_by_now_is_not_followed(work, tmp_path):
    (work / "d").mkdir()
    (work / "d" / "a").write_text("ours")
    points = Checkpoints(tmp_path / "kept", work)
    held = points.note_before([], whole=True)
    (work / "d" / "a").write_text("changed")
    points.note_after(held, [], whole=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_text("changed")
    shutil.rmtree(work / "d")
    (work / "d").symlink_to(tmp_path / "elsewhere")
    plan = points.plan_undo()
    assert plan.lost == (str(work / "d" / "a"),)
    points.restore_files(plan)
    assert (tmp_path / "elsewhere" / "a").read_text() == "changed"


async def test_a_folder_too_large_says_so_and_keeps_what_a_command_names(
    work, tmp_path, monkeypatch
):
    monkeypatch.setattr(checkpoints, "MOST_FILES", 3)
    for name in "abcde":
        (work / name).write_text(name)
    points = Checkpoints(tmp_path / "kept", work)
    await tools(points, work)["shell"].run({"command": "rm a; python3 -c \"open('b','w')\""})
    plan = points.plan_undo()
    assert plan.point.partial
    assert points.restore_files(plan) == []
    assert ((work / "a").read_text(), (work / "b").read_text()) == ("a", "")


async def test_contents_are_private_and_dropped_when_no_turn_needs_them(work, tmp_path):
    (work / "secret").write_text("s")
    (work / "a").write_text("a")
    points = Checkpoints(tmp_path / "kept", work)
    await tools(points, work)["shell"].run({"command": "echo b > a"})
    contents = tmp_path / "kept" / "contents"
    assert stat.S_IMODE(contents.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in contents.iterdir()} == {0o600}
    points.end_session()
    assert sorted(one.read_text() for one in contents.iterdir()) == ["a", "b\n"]
