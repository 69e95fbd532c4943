"""`search`: by ripgrep and by our own walk, with one form."""

import asyncio
import os
import shutil
import sys
import time

import pytest

from foldline.agent.tools import search_files
from foldline.agent.tools.read_files import Root, build_list_tool, build_read_tool
from foldline.core.parts import text_of
from foldline.errors import BadInput

BOTH = [pytest.param("", id="walk")] + (
    [pytest.param(shutil.which("rg"), id="rg")] if shutil.which("rg") else []
)


@pytest.fixture
def root(tmp_path):
    """A tree with whatever tells two searches apart."""
    here = tmp_path / "here"
    for name, text in {
        ".gitignore": "build/\n*.log\n!kept.log\n/only_here.txt\n# needle\ndoc/**/draft?.md\n",
        "a.py": "import os\nneedle = 1\n\nprint(needle, needle)\n",
        "b.txt": "no line end needle",
        ".hidden/conf": "needle in a hidden folder\n",
        ".git/config": "needle\n",
        "node_modules/x/index.js": "needle\n",
        "src/.venv/lib.py": "needle\n",
        "build/out.txt": "needle\n",
        "src/build/out.txt": "needle\n",
        "src/deep/run.log": "needle\n",
        "src/deep/kept.log": "needle kept\n",
        "src/only_here.txt": "needle: anchored above, so not ignored here\n",
        "only_here.txt": "needle\n",
        "src/.gitignore": "!run2.log\n[xy].tmp\n",
        "src/run2.log": "needle taken back\n",
        "src/x.tmp": "needle\n",
        "src/z.tmp": "needle\n",
        "doc/a/draft1.md": "needle\n",
        "doc/a/final.md": "needle: done: really\n",
        "long.txt": "needle " + "x" * 5_000 + "\nshort needle\n",
        "win.txt": "one\r\nneedle\r\n",
        "späth/ünï.txt": "Nadel needle Größe\n",
        "Z.txt": "needle\n",
        "a-b.txt": "needle\n",
        "a/b.txt": "needle\n",
        "binary.bin": "",
    }.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (here / "binary.bin").write_bytes(b"\0\1needle\n")
    (here / "link").symlink_to("a.py")
    (here / "linked").symlink_to("src")
    return Root(here)


def found(root, rg, **arguments):
    tool = search_files.build_search_tool(root, rg=rg)
    tool.intent(arguments)
    return text_of(asyncio.run(tool.run(arguments)).parts)


@pytest.mark.skipif(not shutil.which("rg"), reason="ripgrep is not installed")
@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "needle"},
        {"pattern": "needle", "path": "src"},
        {"pattern": "needle", "path": "a.py"},
        {"pattern": "needle", "names": "*.txt"},
        {"pattern": "needle", "names": "*.log"},
        {"pattern": "needle", "names": "*.{py,md}"},
        {"pattern": "needle", "names": "src/**/*.log"},
        {"pattern": "needle", "names": "deep/*", "path": "src"},
        {"pattern": "(?i)NEEDLE"},
        {"pattern": "^needle$"},
        {"pattern": "^$"},
        {"pattern": "x*"},
        {"pattern": r"needle\s+in|Gr..e"},
        {"pattern": "absent"},
        {"pattern": r"absent|1\s+print"},
    ],
    ids=str,
)
def test_both_engines_say_the_same(root, arguments):
    by_walk = found(root, "", **arguments)
    assert by_walk == found(root, shutil.which("rg"), **arguments)
    assert ("absent" in arguments["pattern"]) == by_walk.startswith("[no match")


@pytest.mark.parametrize("rg", BOTH)
def test_search_says_path_line_and_text(root, rg):
    lines = found(root, rg, pattern="needle").split("\n")
    assert "a.py:2: needle = 1" in lines
    assert "a.py:4: print(needle, needle)" in lines  # once, however often it matches
    assert "b.txt:1: no line end needle" in lines
    assert "win.txt:2: needle" in lines
    assert "src/run2.log:1: needle taken back" in lines
    seen = {line.split(":")[0] for line in lines}
    assert not {".git/config", "build/out.txt", "src/build/out.txt", "only_here.txt", "link"} & seen
    assert not {"node_modules/x/index.js", "src/.venv/lib.py", "binary.bin", "src/x.tmp"} & seen
    assert "src/only_here.txt" in seen
    assert next(line for line in lines if line.startswith("long.txt:1:")) == (
        f"long.txt:1: {('needle ' + 'x' * 5_000)[:200]} […]"
    )
    assert found(root, rg, pattern="needle", names="*.log") == (
        "src/deep/kept.log:1: needle kept\nsrc/run2.log:1: needle taken back"
    )


@pytest.mark.parametrize("rg", BOTH)
def test_search_is_bounded_and_says_how_much_more_there_is(root, rg):
    for name in ("m1", "m2"):
        (root.path / name).write_text("many\n" * 150)
    lines = found(root, rg, pattern="many").split("\n")
    assert len(lines) == 101
    assert lines[-1] == "[200 further matches, 2 files in all; narrow the pattern, path or names]"
    assert found(root, rg, pattern="needle", names="*.{py,md}").split("\n") == [
        "a.py:2: needle = 1",
        "a.py:4: print(needle, needle)",
        "doc/a/final.md:1: needle: done: really",
    ]
    (root.path / "m3").write_text("many\n" * 20_000)
    assert "9,900 or more further matches" in found(root, rg, pattern="many")


@pytest.mark.timeout(20)
def test_an_engine_that_goes_on_printing_is_ended(root, tmp_path):
    """Asyncio's wait() returns only once the pipe is read to its end, which a paused one never is."""
    engine = tmp_path / "rg"
    engine.write_text(
        f"#!{sys.executable}\nimport fcntl, os\n"
        "fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)\n"  # so that much is left when it is ended
        "while True:\n    os.write(1, b'm1\\x001:many\\n' * 200_000)\n"
    )
    engine.chmod(0o755)
    assert "9,900 or more further matches" in found(root, str(engine), pattern="many")


@pytest.mark.parametrize("rg", BOTH)
def test_a_pattern_that_is_refused_says_why(root, rg):
    with pytest.raises(BadInput, match=r"the pattern is refused: .*it is RE2: no look-around"):
        found(root, rg, pattern="(?<=a)b")
    with pytest.raises(BadInput, match="backslash before"):
        found(root, rg, pattern="print(")
    with pytest.raises(BadInput, match=r"there is no sr; like it: src"):
        found(root, rg, pattern="x", path="sr")


def test_what_ripgrep_cannot_read_is_searched_by_us(root):
    (root.path / "q.txt").write_text("a.b*c\n")
    assert found(root, shutil.which("rg") or "", pattern=r"\Qa.b*\E") == "q.txt:1: a.b*c"


@pytest.mark.parametrize("rg", BOTH)
def test_outside_of_the_root_by_whole_paths(root, rg, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.txt").write_text("needle\n")
    tool = search_files.build_search_tool(root, rg=rg)
    assert tool.intent({"pattern": "needle"}) is None
    intent = tool.intent({"pattern": "needle", "path": "../other"})
    assert intent.what == f"search {tmp_path}/other, outside of {root.path}"
    assert found(root, rg, pattern="needle", path="../other") == f"{tmp_path}/other/x.txt:1: needle"


@pytest.mark.real
@pytest.mark.skipif(not shutil.which("rg"), reason="ripgrep is not installed")
def test_a_search_that_is_stopped_leaves_nothing_running(root, tmp_path, timed):
    """The process that is asked is gone before the cancelled call ends."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 30\n")
    slow.chmod(0o755)
    tool = search_files.build_search_tool(root, rg=str(slow))

    async def stopped():
        task = asyncio.ensure_future(tool.run({"pattern": "x"}))
        for _ in range(1_000):
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
                break
            await asyncio.sleep(0.01)
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begun < timed(1)

    asyncio.run(stopped())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("rg", BOTH)
@pytest.mark.parametrize("how", ["device", "pipe"])
def test_a_gitignore_that_never_ends_holds_nothing_up(tmp_path, how, rg, monkeypatch):
    """A cloned repository may have such a link."""
    monkeypatch.setattr("foldline.agent.tools.search_files._SECONDS", 2.0)
    (tmp_path / "a.txt").write_text("a word\n")
    if how == "device":
        (tmp_path / ".gitignore").symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / ".gitignore")
    root = Root(tmp_path)
    listed = asyncio.run(build_list_tool(root).run({"names": "*.txt"}))
    assert text_of(listed.parts) == "a.txt"
    found = text_of(
        asyncio.run(search_files.build_search_tool(root, rg=rg).run({"pattern": "word"})).parts
    )
    assert "a word" in found or (rg and found.startswith("[stopped after 2 s"))


@pytest.mark.parametrize("rg", BOTH)
def test_saved_keys_are_outside_of_a_home_too(tmp_path, monkeypatch, rg):
    """Whoever works in the home folder is asked before keys are read; no list or search has them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    folder = tmp_path / ".config" / "foldline"
    folder.mkdir(parents=True)
    (folder / "keys.json").write_text('{"a": "sk-secret"}')
    (tmp_path / "notes.txt").write_text("sk-no secret\n")
    root = Root(tmp_path)
    asked = build_read_tool(root).intent({"path": ".config/foldline/keys.json"})
    assert asked is not None
    assert asked.what.startswith("read ")
    listed = text_of(asyncio.run(build_list_tool(root).run({"names": "*"})).parts)
    assert listed == "notes.txt"
    found = asyncio.run(search_files.build_search_tool(root, rg=rg).run({"pattern": "sk-"}))
    assert 'secret"' not in text_of(found.parts)
    assert "sk-no" in text_of(found.parts)
