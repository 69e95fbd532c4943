"""Instructions from a hostile folder: nothing outside is read, nothing hangs, nothing is too much."""

import os
import threading
import time

import pytest

from foldline.agent.instructions import Instructions
from foldline.agent.instructions.instruction_files import (
    FileRead,
    FileRefused,
    decode_file_text,
    read_inside,
    strip_hidden_characters,
)

pytestmark = pytest.mark.anyio
OUTSIDE = "SECRET OUTSIDE"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/AGENTS.md").write_text(OUTSIDE)
    (tmp_path / "home/work/.git").mkdir(parents=True)
    return tmp_path / "home/work"


async def agreed(cwd, **more):
    found = Instructions(cwd, **more)
    await found.answers.allow_folder(cwd)
    await found.load_files()
    return found


async def test_a23_a_symlink_out_of_the_root_is_listed_and_never_read(root):
    (root / "AGENTS.md").symlink_to(root.parents[1] / "outside/AGENTS.md")
    (root / "CLAUDE.md").write_text("the next name counts")
    found = await agreed(root)
    assert found.render_texts() == ["[instructions: CLAUDE.md]\nthe next name counts"]
    entry = found.list_files()[0]
    assert (entry.state, entry.why, entry.size) == ("left out", "it is a symlink", 0)


async def test_a23_a_folder_that_is_a_symlink_out_of_the_root_leads_nowhere(root):
    (root / "docs").symlink_to(root.parents[1] / "outside")
    (root / "AGENTS.md").write_text("root\n@docs/AGENTS.md")
    found = await agreed(root)
    found.add_touched_paths([root / "docs/AGENTS.md"])
    assert OUTSIDE not in "".join(found.render_texts())
    assert found.list_files()[1].why == "a folder on its path is a symlink"


async def test_the_users_own_files_may_be_symlinks(root):
    """Whoever keeps dotfiles in a repository links them into the config folder."""
    config = root.parent / ".config/foldline"
    config.mkdir(parents=True)
    (config / "AGENTS.md").symlink_to(root.parents[1] / "outside/AGENTS.md")
    assert OUTSIDE in "".join(Instructions(root).render_texts())


@pytest.mark.parametrize("part", ["file", "folder"])
def test_a23_a_file_swapped_for_a_symlink_while_we_read_never_shows_the_outside(root, part):
    """A race, thousands of times: what is read is what lies inside, or nothing."""
    inner, outside = root / "inner", root.parents[1] / "outside"
    inner.mkdir()
    (inner / "AGENTS.md").write_text("inside")
    swapped = inner / "AGENTS.md" if part == "file" else inner
    kept, link, done = root / "kept", root / "link", threading.Event()
    swaps = 0

    def swapping():
        nonlocal swaps
        while not done.is_set():
            link.symlink_to(outside / "AGENTS.md" if part == "file" else outside)
            swapped.rename(kept)
            link.rename(swapped)
            swapped.unlink()
            kept.rename(swapped)
            swaps += 1

    thread = threading.Thread(target=swapping)
    thread.start()
    seen: dict[str, int] = {}
    until = time.monotonic() + 60  # on a busy machine a link is seldom there while we look
    try:
        while swaps < 2_000 or ("FileRefused" not in seen and time.monotonic() < until):
            found = read_inside(root, ("inner", "AGENTS.md"), most=100)
            kind = found.body.decode() if isinstance(found, FileRead) else type(found).__name__
            seen[kind] = seen.get(kind, 0) + 1
    finally:
        done.set()
        thread.join()
    print(f"{swaps:,} swaps of a {part}: {seen}")
    assert {*seen} <= {"inside", "FileRefused", "NoneType"}
    assert seen["inside"]
    assert seen.get("FileRefused")  # else nothing was ever swapped under us


async def test_a23_a_file_of_5_mb_is_read_only_as_far_as_the_budget_needs(root, monkeypatch):
    line = "All work and no play makes a dull page of rules.\n"
    (root / "AGENTS.md").write_text(line * (5_000_000 // len(line)))
    taken = 0
    real = os.read

    def counting(file, most):
        nonlocal taken
        got = real(file, most)
        taken += len(got)
        return got

    monkeypatch.setattr(os, "read", counting)
    found = await agreed(root)
    (text,) = found.render_texts()
    assert taken <= 2 * (32 * 1024 + 1)  # look(), and texts()
    size = (root / "AGENTS.md").stat().st_size
    assert text.splitlines()[-2] == "[instructions truncated to fit limit]"
    assert text.splitlines()[-1].endswith(f" of {size:,} bytes")
    (entry,) = found.list_files()
    assert (entry.state, entry.size) == ("truncated", size)
    assert entry.tokens <= 8_000
    assert len(text.encode()) <= 32 * 1024


@pytest.mark.parametrize("kind", ["pipe", "folder"])
async def test_what_is_no_regular_file_is_not_opened_and_does_not_hang(root, kind):
    path = root / "AGENTS.md"
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    found = await agreed(root)
    assert not found.render_texts()
    assert found.list_files()[0].why == "it is no regular file"


async def test_a_file_that_nobody_may_read_is_listed_with_the_reason(root, monkeypatch):
    (root / "AGENTS.md").write_text("x")
    real = os.open

    def refusing(path, *rest, **more):
        if path == "AGENTS.md":
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    found = await agreed(root)
    assert found.list_files()[0].why == "it cannot be read: Permission denied"


@pytest.mark.parametrize("inner", [(), ("..", "x"), ("a/b",), (".",), ("",)])
def test_a_path_that_is_no_path_inside_is_refused(root, inner):
    assert isinstance(read_inside(root, inner, most=10), FileRefused)


async def test_what_is_no_utf8_is_replaced_and_said(root):
    (root / "AGENTS.md").write_bytes(b"caf\xe9 rules")
    found = await agreed(root)
    assert found.render_texts()[0].splitlines()[1:] == [
        "[not all of it is UTF-8: what is not was replaced]",
        "caf\ufffd rules",
    ]
    assert "UTF-8" in found.list_files()[0].why


def test_a_letter_that_the_end_of_reading_cuts_in_two_is_no_fault():
    assert decode_file_text("né".encode()[:2]) == ("n", False)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("\x1b]0;title\x07b", "b"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x9b2Jc", "c"),
        ("bell\x07 back\x08 nul\x00", "bell back nul"),
        ("\u202eturned\u202c \U000e0041tag \ufeffmark", "turned tag mark"),
        ("tab\tand\nline 👩‍🚀", "tab\tand\nline 👩‍🚀"),
    ],
)
def test_escape_sequences_and_what_hides_from_a_reader_are_cleaned(given, kept):
    assert strip_hidden_characters(given) == kept


async def test_a_name_that_would_drive_the_terminal_is_shown_without(root):
    folder = root / "evil\x1b[2J\nx"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("rules")
    found = await agreed(root)
    found.add_touched_paths([folder / "x"])
    assert found.render_texts() == ["[instructions: evil?[2J?x/AGENTS.md]\nrules"]
