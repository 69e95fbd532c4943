"""llms.txt, made from the site's navigation and its pages."""

import re
from pathlib import Path

import pytest
import site_hooks
import yaml
from make_llms import build_text, find_first_sentence, iterate_pages

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def test_it_names_every_page_but_the_projects():
    text = build_text(SITE, ROOT / "docs")
    rows = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\): (.+)$", text, re.MULTILINE)
    entries = {title: inner for entry in SITE["nav"] for title, inner in entry.items()}
    pages = [
        page
        for title, inner in entries.items()
        if title != "Project"
        for page in (iterate_pages(inner) if isinstance(inner, list) else [(title, inner)])
    ]
    assert len(rows) == len(pages) > 50
    for (_, address, words), (_, path) in zip(rows, pages, strict=True):
        source = ROOT / "docs" / f"{address.strip('./') or 'index'}.md"
        folder = ROOT / "docs" / address / "index.md"
        assert ROOT / "docs" / path in (source, folder)
        assert len(words.split()) > 3
    assert "decisions/" not in text


def test_the_build_writes_it(tmp_path):
    config = {**SITE, "docs_dir": str(ROOT / "docs"), "site_dir": str(tmp_path)}
    site_hooks.on_post_build(config=config)
    assert (tmp_path / "llms.txt").read_text() == build_text(SITE, ROOT / "docs")


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("# A\n\nOne thing. Another.\n", "One thing."),
        ("---\nhide: x\n---\n# A\n\n```toml\n[a]\n\nb = 1\n```\n\nThe [rest](x.md) is\nhere. No.", "The rest is here."),
        ("# A\n\n<!-- made -->\n\n| a |\n\n**Why**, e.g. this? Yes.", "Why, e.g. this?"),
    ],
)  # fmt: skip
def test_the_first_sentence_is_found(page, sentence):
    assert find_first_sentence(page) == sentence
