"""The pages hold together: links lead somewhere, drawings are the newest, numbers are the code's."""

import os
import re
import runpy
from pathlib import Path

import pytest

from foldline.apps.cli.app import _PANELS
from foldline.core.policy import PRESETS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if DOCS / "decisions" not in path.parents)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
PAPERS = [
    ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "AGENTS", "SECURITY", "CHANGELOG")
]
FIVE = ("log", "view", "budget", "edits", "request")
SHORT = (
    "concepts/after-a-fold",
    "concepts/when-it-costs-more",
    "how-to/web-service",
    "how-to/which-way-in",
)
"""Pages that answer one question in fewer than 600 words; blocks and what they print are not counted."""
MOST_WORDS = 37_432
"""Words of the pages that people read: all but the reference, decisions, papers and requirements. It only goes down."""
MINE = [
    DOCS / "quickstart.md",
    *sorted((DOCS / "concepts").glob("*.md")),
    *(path for path in sorted((DOCS / "how-to").glob("*.md")) if path.name != "telegram.md"),
]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def plain(path: Path) -> str:
    """A page without its blocks and code."""
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", path.read_text()))


def anchors(path: Path) -> set[str]:
    """What a forge and mkdocs both make of headings."""
    heads = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", [*PAGES, *PAPERS, *(DOCS / "decisions").glob("*.md")], ids=name_of)
def test_every_link_leads_somewhere(path):
    for link in LINK.findall(plain(path)):
        if link.startswith(("http://", "https://")):
            continue
        place, _, anchor = link.partition("#")
        target = Path(os.path.normpath(path.parent / place)) if place else path
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


@pytest.mark.parametrize("path", MINE, ids=name_of)
def test_a_page_reads_on_a_forge_and_on_the_site(path):
    """No marks that only one of the two knows; lists and tables behind an empty line."""
    text = FENCED.sub("", path.read_text())
    assert not re.search(r"^(!!!|\?\?\?|:::|=== \")|\{: ?|\[\[", text, re.MULTILINE)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    for above, line in zip(text.split("\n"), text.split("\n")[1:], strict=False):
        for mark in ("- ", "1. ", "| "):
            if line.startswith(mark) and above.strip() and not above.startswith(mark):
                assert above.startswith(("- ", "  ", "   ", "|")), line
    assert not [line for line in text.split("\n") if len(line) > 130 and not line.startswith("|")]


def list_named_commands(text: str) -> set[str]:
    """The commands of `foldline` in the code of a page: in backticks, at prompts and in blocks."""
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", FENCED.sub("", text))
    lines = [line for one in FENCED.findall(text) for line in one.split("\n")]
    lines += [line for line in text.split("\n") if line.startswith("    ")]
    return {
        found[1]
        for one in (*spans, *lines)
        if (found := re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*foldline ([a-z][a-z-]*)", one.strip()))
    }


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"], ids=name_of)
def test_every_command_that_a_page_names_exists(path):
    known = {name.split()[0] for commands in _PANELS.values() for name in commands}
    assert list_named_commands(path.read_text()) <= known


def test_the_first_lines_that_install_need_no_index():
    """Until the package is on one, each page that begins with pip says where it comes from."""
    for name in (
        "README.md",
        "docs/index.md",
        "docs/quickstart.md",
        "docs/how-to/run.md",
        "docs/how-to/run-a-gateway.md",
        "docs/how-to/web-service.md",
    ):
        above, install, _ = (ROOT / name).read_text().partition("\n$ pip install 'foldline")
        assert install, name
        assert "index yet" in above, name
        assert re.search(r"(?:pip install|write) \W?'?\.", above), name


def test_a_command_that_is_not_there_is_found():
    text = "Use `foldline recal log:2`.\n\n```console\n$ A=b foldline shwo x\n```\n\n    foldline undoo\n"
    assert list_named_commands(text) == {"recal", "shwo", "undoo"}


def test_concepts_are_short_and_drawn():
    """One page and one drawing for each of the five words, and one for all."""
    for name in (*FIVE, "index"):
        path = DOCS / "concepts" / f"{name}.md"
        text = path.read_text()
        assert text.count("\n") <= 90
        assert len(re.findall(r"!\[.+\]\(\.\./pictures/concept-\w+\.svg\)", text)) == 1


@pytest.mark.parametrize("name", SHORT)
def test_a_page_for_one_question_is_short(name):
    assert len(FENCED.sub("", (DOCS / f"{name}.md").read_text()).split()) < 600


def test_the_glossary_has_ten_words():
    rows = re.findall(r"^\| \*\*[a-z]+\*\* \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(rows) == 10


def count_words() -> int:
    """Count the words of all pages but the reference and the project's own."""
    own = {DOCS / "papers.md", DOCS / "requirements.md"}
    read = (path for path in PAGES if path not in own and DOCS / "reference" not in path.parents)
    return sum(len(path.read_text().split()) for path in read)


def test_the_docs_only_become_shorter():
    """Say it once, on one page. Lower the number when you have."""
    assert MOST_WORDS - 400 <= count_words() <= MOST_WORDS


def test_the_drawings_are_the_newest():
    """`just drawings` was run; letters are large enough for 360 pixels, and within the card."""
    made = runpy.run_path(str(ROOT / "scripts" / "make_drawings.py"))
    for name, drawn in made["DRAWINGS"].items():
        text = drawn()
        assert (DOCS / "pictures" / f"concept-{name}.svg").read_text() == text
        sizes = [int(size) for size in re.findall(r'font-size="(\d+)"', text)]
        assert min(sizes) * 360 / made["WIDE"] >= 12


def test_presets_are_told_with_their_numbers():
    page = (DOCS / "how-to" / "policies.md").read_text()
    rows = {row[0]: row[1] for row in re.findall(r"^\| `([\w-]+)` \| (.*) \|$", page, re.MULTILINE)}
    assert {*PRESETS} <= {*rows}
    for name, preset in PRESETS.items():
        told = rows[name]
        if preset.priced is not None:
            tail, floor = preset.priced.tail, preset.priced.floor
            assert f"{tail.groups} groups or {tail.tokens:,} tokens" in told
            assert not floor or f"{floor:,} tokens" in told
            assert f"{preset.hard:.0%}".replace("%", " %") in told
        for share in (preset.soft, None if preset.priced or not preset.folds else preset.hard):
            assert share in (None, 1.0) or f"{share * 100:.0f} %" in told
        if preset.clip.tokens < 1_000_000:
            assert f"{preset.clip.tokens:,} tokens" in told
    edits = (DOCS / "concepts" / "edits.md").read_text()
    assert f"{PRESETS['steady'].priced.floor:,} tokens" in edits
