"""`read`, `write`, `edit`, `list`: on real files."""

import asyncio
import os
import re
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.agent.tools import edit_files, read_files
from foldline.agent.tools.edit_files import render_diff
from foldline.agent.tools.read_files import Root
from foldline.core.edits import mask
from foldline.core.edits.clip import clip_event
from foldline.core.item import Item
from foldline.core.log import ToolReturned
from foldline.core.parts import Gap, Media, Text, text_of
from foldline.errors import BadInput

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8) + (40).to_bytes(4, "big") + (30).to_bytes(4, "big") + bytes(9)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "here" / "src").mkdir(parents=True)
    return Root(tmp_path / "here")


def done(tool, **arguments):
    """A call as the loop makes it: the intent first, then the tool."""
    tool.intent(arguments)
    return asyncio.run(tool.run(arguments))


def words(tool, **arguments):
    return text_of(done(tool, **arguments).parts)


def refused(tool, **arguments):
    with pytest.raises(BadInput) as fault:
        done(tool, **arguments)
    return str(fault.value)


def test_read_shows_a_files_own_characters(root):
    (root.path / "a.txt").write_text("one\n\ttwo\nthree")
    read = read_files.build_read_tool(root)
    assert words(read, path="a.txt") == "one\n\ttwo\nthree"
    assert words(read, path="a.txt", first=2, lines=1) == "[lines 2-2 of 3]\n\ttwo\n"
    assert words(read, path="a.txt", first=2) == "[lines 2-3 of 3]\n\ttwo\nthree"
    assert words(read, path="a.txt", lines="2") == "[lines 1-2 of 3]\none\n\ttwo\n"
    assert refused(read, path="a.txt", first=4) == "a.txt has 3 lines; there is no line 4"
    assert "lines count from 1" in refused(read, path="a.txt", first=-1)


def test_a_line_ends_at_a_line_feed_and_nowhere_else(root):
    (root.path / "a.txt").write_bytes("a\x0cb\u2028c\rd\ne\n".encode())
    assert words(read_files.build_read_tool(root), path="a.txt", first=2) == "[lines 2-2 of 2]\ne\n"


def test_pictures_come_as_pictures_and_binaries_by_name(root):
    (root.path / "shot.txt").write_bytes(PNG)  # by its bytes, not by its name
    (root.path / "core").write_bytes(b"\x7fELF\0\0" + bytes(range(256)))
    (root.path / "old.txt").write_bytes("caf\xe9".encode("latin-1"))
    (root.path / "none").touch()
    read = read_files.build_read_tool(root)
    about, picture = done(read, path="shot.txt").parts
    assert about == Text("shot.txt: image/png, 33 bytes")
    assert isinstance(picture, Media)
    assert (picture.form, picture.mime, picture.name) == ("image", "image/png", "shot.txt")
    assert words(read, path="core") == "core is binary, 262 bytes: not shown"
    assert words(read, path="old.txt") == "[not UTF-8: \ufffd is lost]\ncaf\ufffd"
    assert words(read, path="none") == "[the file is empty]"


def test_what_is_no_file_is_said(root):
    (root.path / "src" / "parser.py").touch()
    os.mkfifo(root.path / "pipe")
    (root.path / "loop").symlink_to("loop")
    read = read_files.build_read_tool(root)
    assert refused(read, path="src") == "src is a folder; list shows what is in it"
    assert refused(read, path="src/parsers.py") == "there is no src/parsers.py; like it: parser.py"
    assert (
        refused(read, path="lib/x/a.py")
        == "there is no lib/x/a.py, nor its folder; what is there is ../.."
    )
    assert "is no file but a device" in refused(read, path="pipe")
    assert "leads nowhere" in refused(read, path="loop")
    assert "is no path" in refused(read, path=" ")
    assert "unknown field `line`; it takes path, first, lines" in refused(read, path="a", line=1)
    assert "missing required field `path`" in refused(read)


def test_a_file_that_is_too_large_is_read_by_lines(root, monkeypatch):
    monkeypatch.setattr(read_files, "LARGEST", 1_000)
    (root.path / "log").write_text("".join(f"line {n:05}\n" for n in range(1_000)))
    read = read_files.build_read_tool(root)
    assert (
        refused(read, path="log")
        == "log has 11,000 bytes; read it by first and lines, or search it"
    )
    assert words(read, path="log", first=500, lines=2) == (
        "[lines 500-501 of 11,000 bytes]\nline 00499\nline 00500\n"
    )
    assert "ask for fewer" in refused(read, path="log", lines=900)


def test_looking_outside_of_the_root_is_asked_about(root, tmp_path):
    (tmp_path / "secret").write_text("s")
    (root.path / "link").symlink_to(tmp_path / "secret")
    (root.path / "within").symlink_to("src")
    read = read_files.build_read_tool(root)
    for path in ("../secret", str(tmp_path / "secret"), "src/../../secret"):
        intent = read.intent({"path": path})
        assert intent.what == f"read {tmp_path}/secret, outside of {root.path}"
        assert intent.rules == (f"read: {tmp_path}/secret", f"read: {tmp_path}/*")
    assert read.intent({"path": "link"}).what.startswith(
        f"read {tmp_path}/secret (through the link link), outside of"
    )
    assert read_files.build_list_tool(root).intent({"path": ".."}) is not None
    for path in ("src", "within", str(root.path / "src"), "src/../a.txt"):
        assert read.intent({"path": path}) is None


def test_a_link_that_leads_elsewhere_after_the_question_is_not_followed(root, tmp_path):
    (tmp_path / "secret").write_text("s")
    (root.path / "a").write_text("a")
    for tool, more in (
        (read_files.build_read_tool(root), {}),
        (edit_files.build_write_tool(root), {"content": "mine"}),
    ):
        link = root.path / "link"
        link.unlink(missing_ok=True)
        link.symlink_to("a")
        arguments = {"path": "link", **more}
        tool.intent(arguments)
        link.unlink()
        link.symlink_to(tmp_path / "secret")
        with pytest.raises(BadInput, match=r"by now|in between"):
            asyncio.run(tool.run(arguments))
    assert (tmp_path / "secret").read_text() == "s"


def test_write_makes_folders_and_keeps_the_mode(root):
    write = edit_files.build_write_tool(root)
    assert (
        words(write, path="new/deep/a.sh", content="echo\n") == "done: create new/deep/a.sh, 1 line"
    )
    path = root.path / "new/deep/a.sh"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o750)
    assert (
        words(write, path="new/deep/a.sh", content="a\nb")
        == "done: overwrite new/deep/a.sh, 2 lines"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert path.read_text() == "a\nb"
    assert [one.name for one in path.parent.iterdir()] == ["a.sh"]  # nothing is left beside it
    assert write.intent({"path": "new/deep/a.sh", "content": "a\nb"}) is None
    assert words(write, path="new/deep/a.sh", content="a\nb") == "new/deep/a.sh is so already"
    assert "is a folder" in refused(write, path="new", content="")
    assert "is a folder" in refused(write, path="other/", content="")
    assert write.touches({"path": "new/x"}) == [root.path / "new/x"]


def test_a_write_that_fails_leaves_the_file_as_it_was(root, monkeypatch):
    (root.path / "a").write_text("before")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        done(edit_files.build_write_tool(root), path="a", content="after")
    assert (root.path / "a").read_text() == "before"
    assert sorted(one.name for one in root.path.iterdir()) == ["a", "src"]


def test_a_write_through_a_link_keeps_the_link_and_says_so(root, tmp_path):
    (root.path / "src" / "a").write_text("old\n")
    (root.path / "link").symlink_to("src/a")
    (root.path / "out").symlink_to(tmp_path / "outside")
    write = edit_files.build_write_tool(root)
    intent = write.intent({"path": "link", "content": "new\n"})
    assert intent.what == "overwrite src/a (through the link link), 1 line"
    assert intent.rules == ("write: src/a", "write: src/*", "write: *")
    done(write, path="link", content="new\n")
    assert (root.path / "link").is_symlink()
    assert (root.path / "src" / "a").read_text() == "new\n"
    intent = write.intent({"path": "out", "content": "x"})
    assert intent.what == (
        f"create {tmp_path}/outside (through the link out), 1 line, outside of {root.path}"
    )
    assert intent.rules == (f"write: {tmp_path}/outside", f"write: {tmp_path}/*")


def test_an_intent_shows_the_diff(root):
    (root.path / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    edit = edit_files.build_edit_tool(root)
    intent = edit.intent({"path": "a.py", "old": "line 12\n", "new": "LINE 12\n"})
    assert intent.what == "edit a.py at line 12"
    assert intent.detail.split("\n") == [
        "--- a/a.py", "+++ b/a.py", "@@ -9,7 +9,7 @@", " line 9", " line 10", " line 11",
        "-line 12", "+LINE 12", " line 13", " line 14", " line 15",
    ]  # fmt: skip
    new = edit_files.build_write_tool(root).intent({"path": "b.py", "content": "x\n"})
    assert new.detail == "--- a/b.py\n+++ b/b.py\n@@ -0,0 +1,1 @@\n+x".replace("+1,1", "+1")


def test_a_file_that_changed_while_a_person_was_asked_is_left_alone(root):
    path = root.path / "a"
    for tool, more in (
        (edit_files.build_write_tool(root), {"content": "mine"}),
        (edit_files.build_edit_tool(root), {"old": "shown", "new": "mine"}),
    ):
        path.write_text("shown")
        arguments = {"path": "a", **more}
        tool.intent(arguments)
        path.write_text("shown, and theirs")
        with pytest.raises(BadInput, match="has changed in between; read it and call again"):
            asyncio.run(tool.run(arguments))
        assert path.read_text() == "shown, and theirs"
        assert done(tool, **arguments).ok


def test_edit_replaces_what_stands_once(root):
    path = root.path / "a.py"
    path.write_text("def a():\n    return 1\n\ndef b():\n    return 1\n")
    edit = edit_files.build_edit_tool(root)
    assert refused(edit, path="a.py", old="return 1", new="return 2") == (
        "old is in a.py 2 times, at lines 2, 5; give more of the text around the one you mean, "
        "or all=true"
    )
    assert words(edit, path="a.py", old="b():\n    return 1", new="b():\n    return 2") == (
        "done: edit a.py at line 4"
    )
    assert path.read_text() == "def a():\n    return 1\n\ndef b():\n    return 2\n"
    assert words(edit, path="a.py", old="return", new="yield", all=True) == (
        "done: edit a.py at lines 2, 5"
    )
    assert path.read_text().count("yield") == 2
    assert refused(edit, path="a.py", old="nowhere", new="") == (
        "old is not in a.py; read the file, and copy from it"
    )
    assert refused(edit, path="a.py", old="def a():\n  yield 1", new="x") == (
        "old is not in a.py; at line 1 it stands with other blanks: read first=1"
    )
    assert refused(edit, path="a.py", old="def b():\n    yield 3", new="x") == (
        "old is not in a.py; its first line stands at 4: read what is there"
    )
    assert "old must be some text" in refused(edit, path="a.py", old="", new="x")
    assert "old must be some text" in refused(edit, path="a.py", old="def", new="def")
    assert "there is no b.py" in refused(edit, path="b.py", old="x", new="y")


def test_overlapping_matches_are_more_than_one(root):
    (root.path / "a").write_text("xaaax")
    assert "2 times" in refused(edit_files.build_edit_tool(root), path="a", old="aa", new="b")


def test_line_ends_of_windows_are_kept(root):
    path = root.path / "a.txt"
    path.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert words(read_files.build_read_tool(root), path="a.txt") == "one\ntwo\nthree\n"
    done(edit_files.build_edit_tool(root), path="a.txt", old="one\ntwo", new="1\n2")
    assert path.read_bytes() == b"1\r\n2\r\nthree\r\n"
    done(edit_files.build_write_tool(root), path="a.txt", content="x\ny\r\n")
    assert path.read_bytes() == b"x\r\ny\r\n"
    path.write_bytes(b"one\r\ntwo\n")  # mixed: left to itself
    done(edit_files.build_edit_tool(root), path="a.txt", old="two\n", new="2\n")
    assert path.read_bytes() == b"one\r\n2\n"
    (root.path / "old.txt").write_bytes(b"caf\xe9")
    assert "not UTF-8" in refused(
        edit_files.build_edit_tool(root), path="old.txt", old="caf", new="x"
    )


@given(text=st.text(alphabet="ab\n\r", max_size=30), old=st.text(alphabet="ab\n\r", min_size=1, max_size=4), new=st.text(alphabet="ab\n", max_size=4))  # fmt: skip
def test_an_edit_changes_nothing_but_what_it_replaces(tmp_path_factory, text, old, new):
    """Whatever the line ends: what stands before and behind the place is as it was."""
    root = Root(tmp_path_factory.getbasetemp())
    path = root.path / "edited"
    path.write_bytes(text.encode())
    try:
        done(edit_files.build_edit_tool(root), path="edited", old=old, new=new)
    except BadInput:
        assert path.read_bytes() == text.encode()
        return
    after = path.read_bytes().decode()
    ends = "\r\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")
    if ends:
        short, sought = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
        assert after.replace("\r\n", "\n") in {short.replace(old, new), short.replace(sought, new)}
        assert after.count("\n") == after.count("\r\n")
    else:
        assert after == text.replace(old, new)


@pytest.mark.parametrize("how", ["head", "tail", "both", "lines", "ends"])
def test_trap_c_a_marker_is_no_part_of_a_file(root, how):
    """A-11: models copy a truncation marker into a file they write; each way to clip is caught."""
    whole = "".join(f"value_{n} = compute({n})  # error {n}\n" for n in range(2_000))
    event = clip_event(ToolReturned("c", (Text(whole),)), cap=400, how=how)
    shown = "\n".join(
        f"{part.text}\n[whole: log:7; ok]" if isinstance(part, Gap) else text_of((part,))
        for part in event.clip.parts
    )
    write, edit = edit_files.build_write_tool(root), edit_files.build_edit_tool(root)
    with pytest.raises(BadInput, match=r"no part of the file.*recall.*log:7.*nothing was written"):
        write.intent({"path": "a.py", "content": shown})
    (root.path / "a.py").write_text("x = 1\n")
    assert "stands where Foldline cut" in refused(edit, path="a.py", old="x = 1", new=shown)
    assert (root.path / "a.py").read_text() == "x = 1\n"
    gap = next(part.text for part in event.clip.parts if isinstance(part, Gap))
    for line in gap.split("\n"):  # each line of it by itself
        assert "no part of the file" in refused(write, path="b.py", content=f"a\n{line}\nb\n")
        assert done(write, path="quoted.py", content=f"assert shown == '{line}'\n").ok


def test_trap_c_stubs_too_and_a_file_that_has_markers_can_be_edited(root):
    item = Item(3, "result", (Text("found it " * 50),), call_id="c", ok=True, tokens=100)
    write = edit_files.build_write_tool(root)
    stub = mask.render_stub(item)
    assert "log:3" in refused(write, path="a", content=f"x\n{stub}\n")
    assert "log:5" in refused(write, path="a", content="x\n[cut; whole: log:5]\n")
    (root.path / "notes").write_text(f"x = 1\n{stub}\ny = 2\n")
    assert done(edit_files.build_edit_tool(root), path="notes", old="x = 1", new="x = 2").ok
    assert done(write, path="notes", content=f"y\n{stub}").ok


def test_list_is_sorted_bounded_and_marks_folders(root, tmp_path):
    for name in ("b.py", "a.py", ".env", "src/main.py", "src/test_main.py"):
        (root.path / name).touch()
    (root.path / "out").symlink_to(tmp_path)
    (root.path / "node_modules").mkdir()
    (root.path / "node_modules" / "test_dep.py").touch()
    tool = read_files.build_list_tool(root)
    assert words(tool).split("\n") == [
        ".env", "a.py", "b.py", "node_modules/", f"out -> {tmp_path}", "src/",
    ]  # fmt: skip
    assert words(tool, names="*.py") == "a.py\nb.py\nsrc/main.py\nsrc/test_main.py"
    assert words(tool, names="src/**/*.py") == "src/main.py\nsrc/test_main.py"
    assert words(tool, path="src", names="test_*") == "src/test_main.py"
    assert words(tool, names="*.rs") == "[no file below . is named like *.rs]"
    assert refused(tool, path="a.py") == "a.py is a file; read shows it"
    assert "there is no lib" in refused(tool, path="lib")
    many = root.path / "many"
    many.mkdir()
    for n in range(320):
        (many / f"{n:03}").touch()
    lines = words(tool, path="many").split("\n")
    assert (len(lines), lines[-1]) == (301, "[20 more; names=… shows some of them]")
    assert words(tool, path="many", names="*").split("\n")[-1].startswith("[20 more;")


def test_a_diff_of_large_texts_takes_no_time():
    old = "".join(f"old {n}\n" for n in range(50_000))
    new = "".join(f"new {n}\n" for n in range(50_000))
    told = render_diff(old, new, "a").split("\n")
    assert told[2] == "@@ -1,50000 +1,50000 @@"
    assert len(told) == 100_003
    near = render_diff(old, old.replace("old 40000\n", "new\n"), "a").split("\n")
    assert near[2] == "@@ -39998,7 +39998,7 @@"
    assert near[6:8] == ["-old 40000", "+new"]


def split_lines(text):
    *lines, rest = text.split("\n")
    return [*lines, rest] if rest else lines


def apply_diff(diff, before):
    """What a person who reads the diff expects to be written."""
    old, made, at = split_lines(before), [], 0
    for line in diff.split("\n")[2:]:
        if found := re.match(r"@@ -(\d+)(,0)?", line):
            start = int(found[1]) - (not found[2])  # an empty range names the line before it
            made += old[at:start]
            at = start
        elif line[:1] in (" ", "-"):
            assert line[1:] == old[at]
            made += [old[at]] if line[:1] == " " else []
            at += 1
        elif line[:1] == "+":
            made.append(line[1:])
    return [*made, *old[at:]]


LINES = st.lists(
    st.sampled_from(["a", "b", "# c", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\ra", "\n", "\n", "\n"])
).map("".join)  # fmt: skip


@given(LINES, LINES)
def test_a_diff_says_all_that_is_written(before, after):
    """Also where something else than a newline would end a line: it could hide the next in a comment."""
    diff = render_diff(before, after, "a")
    assert apply_diff(diff, before) == split_lines(after)
    assert (len(diff.split("\n")) > 2) == (before != after)


def test_only_a_diff_that_changes_windows_line_ends_shows_them():
    old, new = "a\r\nb\r\n", "a\r\nc\r\n"
    assert render_diff(old, new, "a").split("\n")[3:] == [" a", "-b", "+c"]
    assert "+c\r" in render_diff("a\nb\n", new, "a").split("\n")


def test_a_line_that_is_joined_to_a_comment_is_seen():
    old = "# check the signature first\nverify x || exit 1\necho done\n"
    new = old.replace("first\n", "first\x0b")
    assert "-verify x || exit 1" in render_diff(old, new, "a").split("\n")
    assert "+# check the signature first\x0bverify x || exit 1" in render_diff(old, new, "a")
