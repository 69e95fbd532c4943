"""Tools of others in an environment of their own: known vulnerabilities, and CycloneDX's schema.

Knows what their answers mean. Refuses to take silence for consent: where the vulnerability service
is out of reach, nothing was audited, and that is what is said.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / ".rig" / "release"
_VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(str(fault) if fault else 0)
"""
AWAY = "not audited: service out of reach"
_GONE = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|MaxRetryError|NameResolution|ProxyError|"
    r"ServiceError"
)
_SECONDS = 240


def tools() -> Path:
    """The environment of pip-audit and the schema's checker, from hash-pinned requirements."""
    python = TOOLS / "bin" / "python"
    if not python.exists():
        subprocess.run(["uv", "venv", "--quiet", str(TOOLS)], check=True)
    pins = ROOT / "requirements" / "release.txt"
    line = ["uv", "pip", "sync", "--quiet", "--python", str(python), "--require-hashes", str(pins)]
    subprocess.run(line, check=True)
    return python


def validated(path: Path) -> tuple[bool, str]:
    """Whether a bill of materials is what CycloneDX's own schema asks for."""
    done = subprocess.run(
        [tools(), "-c", _VALIDATE, path], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return True, f"{path.name}: valid by the schema of CycloneDX 1.6"
    return (
        False,
        f"{path.name}: not valid by the schema of CycloneDX 1.6: {done.stderr.strip()[-400:]}",
    )


def audited(*, strict: bool) -> Iterator[tuple[bool, str]]:
    """Each requirements file, and whether something is known against what it pins."""
    program = tools().with_name("pip-audit")
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        line = [program, "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
        try:
            done = subprocess.run(
                [*line, "--format", "json", "-r", path],
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
            )
            out, err = done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            out, err = "", "ConnectTimeout"
        ok, words = meaning(path.name, out, err, strict=strict)
        yield ok, words
        if words.startswith(AWAY):
            return  # the others would wait for the same service


def meaning(name: str, out: str, err: str, *, strict: bool) -> tuple[bool, str]:
    """What pip-audit's JSON means: whether that may stand, and what is told of it.

    Its own last line and exit code do not tell "nothing known" from "nothing asked": a package that
    the service did not answer for is skipped, and the rest of them are fine.
    """
    try:
        found: list[dict[str, Any]] = json.loads(out)["dependencies"]
    except (ValueError, KeyError, TypeError):
        if _GONE.search(err):
            return not strict, AWAY
        return False, f"{name}: pip-audit failed: {err.strip()[-600:]}"
    bad = [
        f"{one['name']} {one['version']} {bug['id']}"
        for one in found
        for bug in one.get("vulns", ())
    ]
    skipped = [one["name"] for one in found if "skip_reason" in one]
    if bad:
        return False, f"{name}: known vulnerabilities: {', '.join(bad)}"
    if len(skipped) == len(found):
        return not strict, f"{AWAY} (it answered for 0 of the {len(found)} packages of {name})"
    if skipped:
        return False, f"{name}: {len(skipped)} of {len(found)} not audited: {', '.join(skipped)}"
    return True, f"{name}: {len(found)} packages, no known vulnerabilities"
