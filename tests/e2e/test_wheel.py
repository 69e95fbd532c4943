"""The built wheel in an empty environment: it installs small, imports fast and works.

The short form of `just release`, by its own steps.
"""

import shutil
import subprocess

import pytest
import release_building as building
from release_records import faults

import release

TRY = """
import foldline
s = foldline.open(":memory:", model="m", window=1_000)
for turn in range(30):
    s.add(f"turn {turn} " + "words " * 40)
    s.request()
    s.add({"role": "assistant", "content": "yes"})
assert s.edits, "it folds"
assert s.recall("log:1").startswith("turn 0")
assert "1: turn 0" in s.recall('recall("log:1", grep="^turn .")')
"""


@pytest.fixture(scope="module")
def tracked():
    """The files as they are here, also those that are not in a commit yet."""
    line = ("ls-files", "--cached", "--others", "--exclude-standard")
    return [one for one in building.git(*line).splitlines() if (building.ROOT / one).is_file()]


@pytest.fixture(scope="module")
def trees(tracked, tmp_path_factory):
    """Two copies of them: what is edited meanwhile is in neither."""
    found = [tmp_path_factory.mktemp(name) for name in ("one", "another")]
    for tree, earlier in zip(found, (building.ROOT, found[0]), strict=True):
        for name in tracked:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(earlier / name, tree / name)
    return found


@pytest.fixture(scope="module")
def built(trees):
    """Both distributions."""
    return building.build(trees[0], trees[0].with_name("dist"), when=building.epoch())


@pytest.mark.real
def test_both_distributions_are_reproducible_and_hold_what_they_should(
    built, trees, tracked, tmp_path
):
    again = building.build(trees[1], tmp_path, when=building.epoch())
    assert building.differing(built, again) == []
    assert building.wheel_faults(built["whl"], tracked) == []
    assert building.source_faults(built["tar.gz"], tracked) == []


@pytest.mark.real
def test_wheel(built, tmp_path, capsys):
    python = release.installed(tmp_path / "env", str(built["whl"]))
    listed = release.run("uv", "pip", "list", "--quiet", "--python", python, "--format", "freeze")
    assert len(listed.stdout.split()) == 4, "foldline, msgspec, apsw and google-re2"
    subprocess.run([python, "-c", TRY], check=True, cwd=tmp_path)
    version = release.run(python.with_name("foldline"), "--version").stdout
    assert version == f"foldline {built['whl'].name.split('-')[1]}\n"
    assert faults(tmp_path / "env") == []

    # By the processor and as a ratio to what it is built on, because these machines are shared.
    ours, parts = release.timed(python)
    with capsys.disabled():
        print(
            f"\nimport foldline and its open {ours.wall:.0f} ms, of the processor {ours.cpu:.0f} ms, "
            f"msgspec and apsw alone {parts.cpu:.0f} ms"
        )
    assert ours.wall < release.IMPORT or ours.cpu < release.RATIO * parts.cpu
