"""The checks of a release can fail: planted packages, foreign files, unknown licences, silent services."""

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import release_building as building
import release_papers as papers
from release_auditing import AWAY, meaning
from release_probes import PROBES
from release_records import faults

import foldline

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def a_wheel(folder: Path, files: dict[str, str], name: str = "planted") -> Path:
    """A package as anybody could publish it; its RECORD lists all that it brings."""
    info = f"{name}-1.dist-info"
    files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}  # fmt: skip
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=") for path, text in files.items()}  # fmt: skip
    rows = [f"{path},sha256={digests[path]},{len(text)}" for path, text in files.items()]
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for one, text in {**files, f"{info}/RECORD": "\n".join([*rows, f"{info}/RECORD,,", ""])}.items():  # fmt: skip
            archive.writestr(one, text)
    return path


@pytest.fixture
def environment(tmp_path):
    """An environment, and a way to install into it."""
    home = tmp_path / "env"
    line = ["uv", "venv", "--quiet", "--python", sys.executable, home]
    subprocess.run(line, check=True)

    def install(files: dict[str, str]) -> Path:
        wheel = a_wheel(tmp_path, files)
        line = ["uv", "pip", "install", "--quiet", "--no-index", "--python", home / "bin" / "python", wheel]  # fmt: skip
        subprocess.run(line, check=True)
        return home

    return install


def test_a_package_that_brings_what_it_lists_is_fine(environment):
    home = environment({"planted/__init__.py": "x = 1\n"})
    subprocess.run([home / "bin" / "python", "-c", "import planted"], check=True)  # its .pyc too
    assert faults(home) == []


def test_a_planted_pth_is_found_though_it_is_listed(environment):
    """As two releases of a well-known gateway did it in March 2026."""
    home = environment({"planted/__init__.py": "", "planted_init.pth": "import planted\n"})
    (found,) = faults(home)
    assert "planted_init.pth: a .pth, which Python runs at every start" in found


def test_what_came_later_is_found(environment):
    home = environment({"planted/__init__.py": "x = 1\n", "planted/more.py": "y = 2\n"})
    (site,) = home.glob("lib/python*/site-packages")
    (site / "planted" / "__init__.py").write_text("x = 3\n")
    (site / "planted" / "more.py").unlink()
    (site / "stray.py").write_text("")
    (site / "planted" / "__pycache__").mkdir()
    (site / "planted" / "__pycache__" / "sleeper.so").write_bytes(b"")
    (home / "bin" / "pip-install").write_text("#!/bin/sh\n")
    (site / "nobody-1.dist-info").mkdir()
    told = "\n".join(faults(home))
    for words in (
        "planted-1: planted/__init__.py is not what its RECORD says",
        "planted-1: planted/more.py is in its RECORD and not there",
        "stray.py: in no package's RECORD",
        "sleeper.so: in no package's RECORD",
        "bin/pip-install: in no package's RECORD",
        "nobody-1.dist-info: has no RECORD",
    ):
        assert words in told
    assert told.count("\n") == 5


def test_a_wheel_holds_the_package_and_nothing_else(tmp_path):
    tracked = building.git("ls-files").splitlines()
    wheel = tmp_path / "foldline-0.1.0-py3-none-any.whl"
    info = "foldline-0.1.0.dist-info"
    own = [f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")]  # fmt: skip
    names = [*own, *(name.removeprefix("src/") for name in tracked if name.startswith("src/foldline/"))]  # fmt: skip

    def made(names):
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in names:
                archive.writestr(name, "")
        return building.wheel_faults(wheel, tracked)

    assert made(names) == []
    assert "tests/conftest.py does not belong" in made([*names, "tests/conftest.py"])[0]
    for lost in ("foldline/py.typed", "foldline/models/catalog.json", "foldline/stores/postgres/sql/001_tables.sql"):  # fmt: skip
        assert made([name for name in names if name != lost]) == [f"{wheel.name}: {lost} is missing"]  # fmt: skip


def test_two_builds_are_compared_by_their_bytes(tmp_path):
    one, other = tmp_path / "a.whl", tmp_path / "b.whl"
    one.write_bytes(b"1")
    other.write_bytes(b"1")
    assert building.differing({"whl": one}, {"whl": other}) == []
    other.write_bytes(b"2")
    (told,) = building.differing({"whl": one}, {"whl": other})
    assert told.startswith("a.whl: ")


def test_a_source_distribution_is_complete(tmp_path):
    source = tmp_path / "foldline-0.1.0.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        archive.add(ROOT / "LICENSE", "foldline-0.1.0/LICENSE")
        archive.add(ROOT / "LICENSE", "foldline-0.1.0/secret.env")
    told = building.source_faults(
        source, ["LICENSE", "README.md", "src/foldline/a.py", "docs/x.md"]
    )
    assert [one.partition(": ")[2] for one in told] == [
        "secret.env does not belong in it", "PKG-INFO is missing", "README.md is missing",
        "src/foldline/a.py is missing",
    ]  # fmt: skip


def test_a_licence_is_known_or_told_to_be_unknown():
    assert papers.spdx("The MIT License (MIT)") == papers.spdx("mit") == "MIT"
    assert papers.spdx("Proprietary") == papers.spdx("") == ""
    assert papers.allowed("x", "Apache-2.0 AND MIT")
    assert papers.allowed("x", "GPL-3.0-only OR MIT")
    assert not papers.allowed("x", "GPL-3.0-only AND MIT")
    assert not papers.allowed("x", "LGPL-3.0-only")
    assert papers.allowed("python-telegram-bot", "LGPL-3.0-only")
    assert not papers.allowed("x", "")
    assert papers.licence(papers.installed()["apsw"]) == "Zlib", "read from its file"


def test_a_bill_of_materials_has_what_the_schema_asks_for():
    body = papers.sbom("foldline", "all")
    assert body == papers.sbom("foldline", "all"), "the same every time"
    names = [one["name"] for one in body["components"]]
    assert {"msgspec", "apsw", "google-re2", "openai"} <= {*names}
    (ours,) = [one for one in body["dependencies"] if one["ref"].startswith("pkg:pypi/foldline@")]
    assert {"msgspec", "psycopg"} <= {ref.partition("@")[0].rpartition("/")[2] for ref in ours["dependsOn"]}  # fmt: skip
    assert [one for one in papers.sbom_faults(body) if "licence" not in one] == []
    first = body["components"][0]
    worse = {**body, "components": [{**first, "version": "", "licenses": []}, first], "serialNumber": "1"}  # fmt: skip
    told = papers.sbom_faults(worse)
    assert f"{first['name']} has no version" in told
    assert f"{first['name']} has no licence that is known" in told
    assert f"{first['bom-ref']} is there twice" in told
    assert "its serialNumber is no urn:uuid" in told
    assert any("is needed and not listed" in one for one in told)


def dependencies(*rows: dict) -> str:
    return json.dumps({"dependencies": rows})


@pytest.mark.parametrize("strict", [False, True])
def test_silence_is_no_consent(strict):
    fine, skipped = {"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}  # fmt: skip
    bad = {"name": "c", "version": "1", "vulns": [{"id": "PYSEC-1"}]}

    def told(out, err=""):
        return meaning("x.txt", out, err, strict=strict)

    assert told(dependencies(fine)) == (True, "x.txt: 1 packages, no known vulnerabilities")
    assert told(dependencies(fine, bad)) == (False, "x.txt: known vulnerabilities: c 1 PYSEC-1")
    assert told(dependencies(fine, skipped)) == (False, "x.txt: 1 of 2 not audited: b")
    ok, words = told(dependencies(skipped))
    assert (ok, words.startswith(AWAY)) == (not strict, True)
    assert told("", "requests.exceptions.ConnectionError: …") == (not strict, AWAY)
    assert told("", "Traceback: boom")[0] is False


def test_every_extra_is_in_all_and_has_a_probe():
    extras = PROJECT["optional-dependencies"]
    assert {*PROBES} == {*extras}
    (everything,) = extras["all"]
    named = everything.removeprefix("foldline[").removesuffix("]").split(",")
    # Frameworks pin the SDKs: litellm takes no openai 3, which the extra `openai` asks for.
    frameworks = {"adk", "langchain", "litellm", "openai-agents", "pydantic-ai"}
    assert sorted(named) == sorted({*extras} - {"all"} - frameworks)
    assert all(probe.lacks for name, probe in PROBES.items() if name != "all")


def test_the_version_is_one():
    assert PROJECT["version"] == foldline.__version__
    heading = f"## {foldline.__version__} ("
    assert heading in (ROOT / "CHANGELOG.md").read_text()
