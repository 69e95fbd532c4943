"""A person's first five minutes with `foldline chat`: every screen, by what README.md says.

    just bench first_chat

An empty environment, an empty home and an empty folder; the built wheel; a real model (SmolLM2) behind llama.cpp's
server on loopback; a terminal of 100 columns in tmux. Prints each screen under what was typed and the second since
the start, and exits 1 where one does not come, or where all of it takes longer than five minutes.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts"))

import release_building as building  # noqa: E402

from release import local_model  # noqa: E402

Tmux = runpy.run_path(str(ROOT / "tests" / "e2e" / "tmux.py"))["Tmux"]
INSTALL, CHAT, GO_ON = "pip install 'foldline[chat]'", "foldline chat", "foldline chat --continue"
MINUTES = 5.0
ASKED = "What is a parser? Two sentences."
README = (ROOT / "README.md").read_text()


class Visit:
    """What the person types and sees, and when."""

    def __init__(self, folder: Path, programs: Path, begun: float) -> None:
        (folder / "home").mkdir()
        (folder / "work").mkdir()
        (folder / "work" / "notes.txt").write_text("The parser reads a token, then the next.\n")
        env = {"HOME": str(folder / "home"), "PATH": f"{programs}:/usr/bin:/bin"}
        self.window = Tmux(folder / "work", columns=100, rows=34, env=env)
        self.begun, self.seen = begun, 0

    def see(self, typed: str, words: str, *, seconds: float = 90.0, keys: str = "Enter") -> None:
        """Type a line, wait for words below it, and print the screen."""
        before = self.window.screen(past=True).count(words)
        self.window.types(typed, keys)
        # What is typed has the words too, where they are its own echo.
        self.window.sees(words, count=before + 1 + typed.count(words), seconds=seconds)
        time.sleep(0.5)  # what comes after them
        self.seen += 1
        took = time.monotonic() - self.begun
        print(f"\n── {self.seen}, after {took:.0f} s: {typed or keys}")
        rows = self.window.screen().rstrip().split("\n")
        print("\n".join(f"   {row}" for row in rows), flush=True)


def visit(one: Visit, address: str) -> None:
    """The five minutes: set it up, ask, look, fold, take it back, leave, come back, use a pipe."""
    bare = address.removeprefix("http://").removesuffix("/v1")  # as people type it
    one.see(CHAT, "Which? [1-5]")
    one.see("5", "Its address")
    one.see(bare, "Its key")
    one.see("", "Which model?")
    one.see("", "/help lists commands")
    one.see(ASKED, "| response:")
    one.see("What do my @notes.txt say?", "| response:")
    one.see("/context", "cost ")
    one.see("/compact --preview", "nothing was written")
    one.see("/compact", "[y/N]")
    one.see("y", "/undo takes it back", seconds=180.0)  # the model tells it, at 30 tokens a second
    one.see("/undo", "/redo makes it again")
    one.see("/help", "/quit")
    one.see("", "$ ", keys="C-d")
    one.see("clear", "$ ")
    one.see(GO_ON, "goes on")
    one.see("", "$ ", keys="C-d")
    one.see("clear", "$ ")
    one.see("foldline chat -p 'Say hello.' < notes.txt; echo code $?", "code ")
    # So small a model may go on until its limit, which is 7.
    if re.findall(r"code (\d)", one.window.screen())[-1] not in ("0", "7"):
        raise SystemExit("`foldline chat -p` failed")


def main() -> int:
    """Do it, and print it."""
    if missing := [name for name in ("tmux", "uv", "just") if shutil.which(name) is None]:
        raise SystemExit(f"not here: {', '.join(missing)}")
    for words in ("`pip install 'foldline[chat]'`", CHAT, GO_ON):
        if words not in README:
            raise SystemExit(f"README.md does not say {words}")
    with tempfile.TemporaryDirectory(prefix="first-chat-") as name:
        folder = Path(name)
        wheel = building.build(ROOT, folder / "dist", when=building.epoch())["whl"]
        with local_model(folder, window=8_192) as address:
            begun = time.monotonic()
            subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)  # noqa: S603
            programs = folder / "env" / "bin"
            line = re.sub(r"foldline\[", f"{wheel}[", INSTALL)
            path = f"{programs}{os.pathsep}{os.environ['PATH']}"
            quiet = "--quiet --no-cache-dir --disable-pip-version-check"
            subprocess.run(f"{line} {quiet}", shell=True, check=True, env={**os.environ, "PATH": path})  # noqa: S602  # fmt: skip
            print(f"{time.monotonic() - begun:.0f} s: {INSTALL}, without a cache")
            one = Visit(folder, programs, begun)
            try:
                visit(one, address)
            finally:
                one.window.close()
            took = time.monotonic() - begun
    ok = took < MINUTES * 60
    print(f"\n{one.seen} screens in {took:.0f} s, {'' if ok else 'not '}within five minutes")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
