"""What packages brought into an environment, held against their own RECORDs.

    python scripts/release_records.py ENVIRONMENT…

A package may bring only files that its RECORD lists, with the sha256 that stands there, and no
`.pth`: Python runs those at every start. Knows environments as uv makes them: empty. Refuses to
know which packages there should be.
"""

import base64
import csv
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

# What makes an environment one, and comes from no package.
_FRAME = {
    ".gitignore", ".lock", "CACHEDIR.TAG", "pyvenv.cfg",
    "bin/activate", "bin/activate.bat", "bin/activate.csh", "bin/activate.fish", "bin/activate.nu",
    "bin/activate.ps1", "bin/activate.xsh", "bin/Activate.ps1", "bin/activate_this.py",
    "bin/deactivate.bat", "bin/pydoc.bat", "bin/python", "bin/python3",
}  # fmt: skip
_UNSIGNED = (".pyc", "RECORD", "RECORD.jws", "RECORD.p7s")


def faults(environment: Path) -> list[str]:
    """Everything in an environment that no RECORD answers for."""
    environment = environment.absolute()
    (site,) = environment.glob("lib/python*/site-packages")
    found: list[str] = []
    listed: set[Path] = set()
    for record in sorted(site.glob("*.dist-info/RECORD")):
        package = record.parent.name.removesuffix(".dist-info")
        for path, fault in _recorded(record, site):
            listed.add(path)
            if fault:
                found.append(f"{package}: {fault}")
    every = sorted({*site.glob("*.dist-info"), *site.glob("*.egg-info")})
    found += [f"{one.name}: has no RECORD" for one in every if not (one / "RECORD").is_file()]
    for path in _files(environment):
        shown = path.relative_to(environment).as_posix()
        if path.suffix == ".pth":
            found.append(f"{shown}: a .pth, which Python runs at every start")
        elif path not in listed and not _is_frame(path, environment):
            found.append(f"{shown}: in no package's RECORD")
    return found


def _recorded(record: Path, site: Path) -> Iterator[tuple[Path, str]]:
    """Each file of a RECORD, and what is wrong with it."""
    for row in csv.reader(record.read_text(encoding="utf-8").splitlines()):
        if not row:
            continue
        name, digest = row[0], row[1] if len(row) > 1 else ""
        path = _plain(site / name)
        if name.endswith(".pyc"):
            yield path, ""  # made here
        elif not path.is_file():
            yield path, f"{name} is in its RECORD and not there"
        elif not digest:
            yield path, "" if name.endswith(_UNSIGNED) else f"{name} has no hash in its RECORD"
        elif digest != _digest(path, digest.partition("=")[0]):
            yield path, f"{name} is not what its RECORD says"
        else:
            yield path, ""


def _plain(path: Path) -> Path:
    """A path without `..`, links left as they are."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return Path(*parts)


def _digest(path: Path, kind: str) -> str:
    if kind not in ("sha256", "sha384", "sha512"):
        return "none that is trusted"
    made = hashlib.new(kind, path.read_bytes()).digest()
    return f"{kind}={base64.urlsafe_b64encode(made).decode().rstrip('=')}"


def _files(environment: Path) -> Iterator[Path]:
    for path in sorted(environment.rglob("*")):
        made_here = path.suffix == ".pyc" and path.parent.name == "__pycache__"
        linked = path.relative_to(environment).parts[0] == "lib64"  # to lib, and looked at there
        if not linked and not made_here and (path.is_file() or path.is_symlink()):
            yield path


def _is_frame(path: Path, environment: Path) -> bool:
    shown = path.relative_to(environment).as_posix()
    version = shown.startswith("bin/python3.") and path.is_symlink()
    return shown in _FRAME or version


def main() -> None:
    """Say what was found; exit 1 if anything was."""
    found = [f"{name}: {fault}" for name in sys.argv[1:] for fault in faults(Path(name))]
    print("\n".join(found) or f"{len(sys.argv) - 1} environments: every file is in a RECORD")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
