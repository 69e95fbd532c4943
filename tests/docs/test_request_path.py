"""The page on a request's path names files and functions that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_the_page_names_is_there():
    page = (ROOT / "docs" / "request-path.md").read_text()
    files = re.findall(r"`([\w/]+\.py)`", page)
    text = "".join((ROOT / "src" / "foldline" / one).read_text() for one in files)
    functions = re.findall(r"`(_?[a-z]+_[a-z_]+|__call__)`", page)
    assert len(files) >= 12
    assert len(functions) >= 12
    assert [one for one in functions if f"def {one}(" not in text] == []
