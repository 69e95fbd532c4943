"""Both distributions, built twice from the commit, and what must and must not be in them.

Knows git, the builder and archives. Refuses to know what is done with them: `release` orders that.
"""

import hashlib
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "src/foldline/"
MUST = (
    "foldline/py.typed",
    "foldline/models/catalog.json",
    "foldline/lab/report/page.css",
    "foldline/stores/postgres/sql/001_tables.sql",
)
_OWN = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
_TOPS = ("src", "tests", "examples")
_PAPERS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
_MADE = ("pyproject.toml", ".gitignore", "PKG-INFO")


def git(*line: str, root: Path = ROOT) -> str:
    """What git says."""
    return subprocess.run(
        ["git", *line], cwd=root, check=True, capture_output=True, text=True
    ).stdout


def epoch(root: Path = ROOT) -> str:
    """When the commit was made: the time that everything in a distribution has."""
    return git("log", "-1", "--format=%ct", root=root).strip()


def build(tree: Path, out: Path, *, when: str) -> dict[str, Path]:
    """A source distribution, and the wheel that is built from it; by the file's ending."""
    env = {**os.environ, "SOURCE_DATE_EPOCH": when}
    pins = ROOT / "requirements" / "build.txt"
    line = ["uv", "build", "--quiet", "--build-constraints", str(pins), "--require-hashes"]
    subprocess.run([*line, "--out-dir", str(out), str(tree)], check=True, env=env)
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return {"whl": wheel, "tar.gz": source}


def export(to: Path, *, root: Path = ROOT) -> Path:
    """The commit's files and nothing that lies beside them."""
    to.mkdir(parents=True)
    packed = to.with_suffix(".tar")
    git("archive", "--output", str(packed), "HEAD", root=root)
    with tarfile.open(packed) as archive:
        archive.extractall(to, filter="data")
    packed.unlink()
    return to


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differing(one: dict[str, Path], other: dict[str, Path]) -> list[str]:
    """Which of two builds' files are not the same bytes."""
    return [
        f"{path.name}: {sha256(path)[:16]}… and {sha256(other[kind])[:16]}…: not the same bytes"
        for kind, path in one.items()
        if sha256(path) != sha256(other[kind])
    ]


def wheel_faults(wheel: Path, tracked: list[str]) -> list[str]:
    """What a wheel has that is not of the package, and what it lacks; by the tracked files."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    info = "-".join(wheel.name.split("-")[:2]) + ".dist-info/"
    package = {name.removeprefix("src/") for name in tracked if name.startswith(PACKAGE)}
    wanted = package | {info + name for name in _OWN}
    return [
        *(f"{wheel.name}: {name} is in it twice" for name in {*names} if names.count(name) > 1),
        *(f"{wheel.name}: {name} does not belong in it" for name in sorted({*names} - wanted)),
        *(f"{wheel.name}: {name} is missing" for name in sorted({*wanted, *MUST} - {*names})),
    ]


def source_faults(source: Path, tracked: list[str]) -> list[str]:
    """The same of a source distribution."""
    with tarfile.open(source) as archive:
        found = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    wanted = {
        name for name in tracked if name.partition("/")[0] in _TOPS or name in (*_PAPERS, *_MADE)
    } | {"PKG-INFO"}
    return [
        *(f"{source.name}: {name} does not belong in it" for name in sorted(found - wanted)),
        *(f"{source.name}: {name} is missing" for name in sorted(wanted - found)),
    ]
