"""The page of the papers' items: all of them, each with something that shows it."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

from foldline.core.policy import PRESETS
from foldline.session.model_facts import build_facts

ROOT = Path(__file__).parents[2]
ITEMS = {"P1": 54, "P2": 36, "P3": 36, "P4": 18, "P5": 26}
"""How many items each paper has."""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    yield importlib.import_module("make_papers")
    sys.modules.pop("make_papers")


def test_every_item_has_a_row():
    rows = re.findall(
        r"^\| (P\d-\d\d) \| (.+) \|$", (ROOT / "docs" / "papers.md").read_text(), re.MULTILINE
    )
    wanted = [f"{paper}-{n:02}" for paper, last in ITEMS.items() for n in range(1, last + 1)]
    assert [name for name, _ in rows] == wanted
    assert len(wanted) == 170
    for name, cells in rows:
        state, shown = re.split(r"(?<!\\) \| ", cells)[-2:]
        assert state == "done" or re.fullmatch(
            r"differently: .+\. \[decision \d+\]\(.+\)", state
        ), name
        assert "`" in shown or "tests/" in shown, name


def test_the_table_of_contradictions_is_what_the_presets_do(script):
    """A preset's number stands in its row; a number that changes must change there, too."""
    papers = tomllib.loads(script.ITEMS.read_text())
    for paper in papers.values():
        preset = PRESETS[paper["preset"].strip("`")]
        for key, number, unit in (
            ("folds", preset.soft and round(100 * preset.soft), "%"),
            ("folds", preset.turns, "turns"),
            ("folds", preset.fill, "tokens"),
            ("keeps", preset.newest, "tokens"),
            ("keeps", preset.tail.messages, "messages"),
            ("keeps", preset.tail.tokens, "tokens"),
            ("summary", preset.narrative, "tokens"),
            ("results", preset.clip.tokens if preset.clip.how == "head" else None, "tokens"),
        ):
            assert not number or f"{number:,} {unit}" in paper[key], (preset.name, key)
        facts = build_facts("", window=100_000, reserve=None, policy=preset).limits
        told = {f"{facts.reserve / 1_000:g} %", f"{facts.reserve:,} tokens"}
        assert any(one in paper["reserve"] for one in told), preset.name
    assert len(papers) == 5


def broken(script, monkeypatch, tmp_path, **item):
    given = {"asked": "It fits", "shown": ["core/test_budget.py"], **item}
    fields = ", ".join(f"{key} = {value!r}" for key, value in given.items())
    path = tmp_path / "papers.toml"
    path.write_text(f'[paper-1]\ntitle = "One"\n\n[paper-1.items]\nP1-01 = {{ {fields} }}\n')
    tomllib.loads(path.read_text())
    monkeypatch.setattr(script, "ITEMS", path)
    return script.page()


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        ({"shown": []}, "nothing shows it"),
        ({"shown": ["core/test_budgets.py"]}, "there is no test core/test_budgets.py"),
        ({"shown": ["core/test_budget.py::test_that_is_not_there"]}, "there is no test"),
        ({"shown": ["$ just bake cake"]}, "there is no recipe bake"),
        ({"differently": "We do not."}, "needs a decision"),
        ({"decision": 1}, "needs a decision"),
        ({"differently": "We do not.", "decision": 999}, "there is no decision 999"),
    ],
)
def test_a_row_that_shows_nothing_is_an_error(script, monkeypatch, tmp_path, item, fault):
    with pytest.raises(ValueError, match=f"P1-01: .*{fault}"):
        broken(script, monkeypatch, tmp_path, **item)


def test_a_row_is_a_link_or_a_command(script, monkeypatch, tmp_path):
    made = broken(script, monkeypatch, tmp_path, shown=["$ just bench core", "core/test_budget.py"])
    assert "`just bench core`<br>[core/test_budget.py](../tests/core/test_budget.py) |" in made
