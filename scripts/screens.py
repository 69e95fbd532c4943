"""Take the screens of docs/how-to/chat.md anew: a real terminal in tmux, and a scripted model.

    .venv/bin/python scripts/screens.py      # writes docs/how-to/chat.md; --png FOLDER pictures too

Every block between `<!-- screen: NAME -->` and the end of the code block behind it is replaced by
what the terminal showed. Answers are scripted, so that they read well; all else is as it is.
"""

import argparse
import io
import re
import runpy
import sys
import tempfile
import time
from pathlib import Path

import resvg_py
from rich.console import Console
from rich.text import Text

from foldline.testing import Provider

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "chat.md"
Tmux = runpy.run_path(str(ROOT / "tests" / "e2e" / "tmux.py"))["Tmux"]
ANSWER = """The parser fails because `peek()` returns `None` at the end of the input:

```python
def peek(self):
    return self.tokens[self.at] if self.at < len(self.tokens) else END
```

1. return `END` instead of `None`
2. let `expect()` name the token that it **found**
"""
LONG = "It stays as we agreed: errors name the place, and nothing is dropped without words. " * 14


def answer(request):
    """What the model says: something about the parser, then much."""
    last = str(request["messages"][-1]["content"])
    return ANSWER if "Why" in last else LONG


def screens(folder):
    """Each screen by its name."""
    with Provider(answer) as provider:
        env = {
            "XDG_DATA_HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        }
        one = Tmux(folder, columns=94, rows=26, env=env)
        try:
            model = (
                f"--base-url {provider.url}/v1 --model gpt-6.1-sol --window 8000 --summarizer off"
            )
            one.types(f"clear; foldline chat parser {model}", "Enter")
            one.sees("/ 8,000")
            one.types("Why do the parser tests fail?", "Enter")
            one.sees("response:")
            time.sleep(0.3)
            yield "first", one
            for turn in range(2, 15):
                one.types(f"Step {turn}: and what of the errors?", "Enter")
                one.sees("response:", count=turn)
            one.types("", "C-l")
            one.types("/compact --preview", "Enter")
            one.sees("nothing was written")
            one.types("/compact the error messages", "Enter")
            one.sees("Compact conversation?")
            one.types("y", "Enter")
            one.sees("tokens became")
            time.sleep(0.3)
            yield "compact", one
            one.types("", "C-l")
            one.types("/context", "Enter")
            one.sees("column =")
            time.sleep(0.3)
            yield "context", one
            one.types("", "C-l")
            one.types("/tokens", "Enter")
            one.sees("threshold")
            one.types("/co")
            time.sleep(0.5)
            yield "tokens", one
            one.types("", "C-c")
            one.types("", "C-d")
            time.sleep(2)
            one.types("clear; foldline chat --continue", "Enter")
            one.sees("goes on")
            time.sleep(1)
            yield "continue", one
        finally:
            one.close()


def picture(text, path):
    """A screen with its colours, as PNG."""
    console = Console(record=True, width=88, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    drawn = re.sub(
        r"@font-face \{.*?\}", "", console.export_svg(title="foldline chat"), flags=re.DOTALL
    )
    drawn = drawn.replace("Fira Code", "DejaVu Sans Mono")
    path.write_bytes(bytes(resvg_py.svg_to_bytes(svg_string=drawn)))


def main():
    """Take every screen, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--png", type=Path)
    given = parser.parse_args()
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        for name, one in screens(Path(folder)):
            shown = "\n".join(line.rstrip() for line in one.screen().rstrip().split("\n"))
            before = re.compile(rf"(<!-- screen: {name} -->\n```text\n).*?(```\n)", re.DOTALL)
            if not before.search(page):
                raise SystemExit(f"{PAGE} has no place for the screen {name!r}")
            page = before.sub(lambda found, text=shown: f"{found[1]}{text}\n{found[2]}", page)
            if given.png:
                picture(one.screen(colours=True), given.png / f"{name}.png")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
