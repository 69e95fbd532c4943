"""Check what users copy with pyright and mypy, both strict: examples, README blocks, tests/types.

    python scripts/check_types.py            by `just check`
    python scripts/check_types.py FILE …     only these

A block of README.md is checked where it stands alone, which is where it imports what it uses.
The examples of adapters are checked where their frameworks are: `list_examples` in tests/adapters.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "types"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CONFIG = {
    "include": ["."],
    "typeCheckingMode": "strict",
    "pythonVersion": "3.11",
    "extraPaths": [str(ROOT / "src")],
}


def collect_files() -> dict[str, str]:
    """What is checked, by the name that an error shows."""
    found = {path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))}
    found |= {
        f"types_{path.name}": path.read_text() for path in (ROOT / "tests/types").glob("*.py")
    }
    text = (ROOT / "README.md").read_text()
    for block in BLOCK.finditer(text):
        if re.search(r"^(import|from) ", block[1], re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 2
            found[f"readme_line_{line}.py"] = block[1]
    return found


def check_files(
    files: dict[str, str],
    folder: Path = FOLDER,
    *,
    environment: Path | str = sys.executable,
    without: tuple[str, ...] = (),
) -> str:
    """What the two checkers say against some files; "" where they say nothing.

    `environment` is the Python whose packages the files use, `without` rules of pyright that these
    packages do not keep themselves.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "pyrightconfig.json").write_text(json.dumps(CONFIG | dict.fromkeys(without, False)))
    python = sys.executable
    names = [str(folder / name) for name in files]
    cache = str(ROOT / "build" / ("mypy" if environment == python else folder / "mypy"))
    strict = ("--strict", "--no-error-summary", "--python-executable", str(environment))
    lines = (
        [python, "-m", "pyright", "--pythonpath", str(environment), "-p", str(folder)],
        [python, "-m", "mypy", *strict, "--cache-dir", cache, *names],
    )
    with ThreadPoolExecutor() as both:
        runs = [*both.map(run_checker, lines)]
    return "".join(run.stdout + run.stderr for run in runs if run.returncode)


def run_checker(line: list[str]) -> subprocess.CompletedProcess[str]:
    """One of the two, on our own source and not on an installed one."""
    paths = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    return subprocess.run(line, check=False, capture_output=True, text=True, env=paths)


def main() -> int:
    """Check them all; 1 where something is found."""
    files = {Path(name).name: Path(name).read_text() for name in sys.argv[1:]} or collect_files()
    wrong = check_files(files)
    print(wrong or f"{len(files)} files are clean by pyright strict and mypy strict")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
