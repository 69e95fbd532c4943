"""What users copy is checked by `just check`, with scripts/check_types.py: all of it, and it can fail."""

import re
from pathlib import Path

import pytest
from check_types import check_files, collect_files

ROOT = Path(__file__).parents[2]


def test_nothing_that_stands_alone_is_left_out():
    files = collect_files()
    assert {path.name for path in (ROOT / "examples").glob("*.py")} <= {*files}
    assert "types_create.py" in files
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    alone = [one for one in blocks if "import" in one]
    assert sum(name.startswith("readme_") for name in files) == len(alone) >= 2
    assert not any(re.search(r"type: ignore|pyright: ", text) for text in files.values())


def test_just_check_asks_for_it():
    recipe = (ROOT / "justfile").read_text().partition("\ncheck: ")[2].partition("\n\n")[0]
    assert "scripts/check_types.py" in recipe


@pytest.mark.real
def test_both_checkers_find_what_is_wrong(tmp_path):
    wrong = 'import foldline\n\ns = foldline.open(":memory:", model=5)\nnumber: str = s.add("x")\n'
    told = check_files({"wrong.py": wrong}, tmp_path)
    assert "reportArgumentType" in told
    assert "[arg-type]" in told
    assert '"int"' in told
