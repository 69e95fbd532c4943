"""The pages of docs/reference are what the code says, and the site's scripts do what they tell."""

import importlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import foldline
from foldline import errors
from foldline.apps.gateway.api.sessions_api import build_openapi_document
from foldline.core import log

ROOT = Path(__file__).parents[2]
PAGES = [
    *("api.md", "api-agent.md", "api-core.md", "api-models.md", "api-store.md", "api-testing.md"),
    *("chat-output.md", "commands.md", "errors.md", "events.md", "openapi.md", "settings.md"),
    *("../papers.md", "../requirements.md"),
]


@pytest.fixture(scope="module")
def scripts():
    """The scripts, as they find each other when one of them is run."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "scripts"))


def page(name):
    return (ROOT / "docs" / "reference" / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(scripts, name):
    made = scripts("make_reference").PAGES[name]()
    assert made == page(name), "run `just reference`"


def test_all_that_is_made_is_held(scripts):
    assert sorted(scripts("make_reference").PAGES) == sorted(PAGES)


def test_every_public_name_has_its_place(scripts, monkeypatch):
    scripts("make_api").check()
    monkeypatch.setattr(foldline, "__all__", [*foldline.__all__, "plan"])
    monkeypatch.setattr(foldline, "plan", type("plan", (), {}), raising=False)
    with pytest.raises(AssertionError, match=r"foldline\.plan is on no page"):
        scripts("make_api").check()


def test_every_event_has_a_line_that_comes_back():
    lines = re.findall(r"```json\n(.*)\n```", page("events.md"))
    assert {json.loads(line)["kind"] for line in lines} == {
        log.event_kind_of(o) for o in log.Event.__args__
    }
    assert all(log.encode_event(log.decode_event(line.encode())) == line.encode() for line in lines)


def test_every_error_is_told():
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    for one in kinds:
        assert (f"\n### `{one.__name__}`\n" in page("errors.md")) == issubclass(one, Exception)


def test_no_reader_meets_our_requirements_numbers():
    """Only docs/requirements.md has them, with their meaning."""
    number = re.compile(r"\b[ARDPM]-\d+\b")
    pages = {*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"}
    for path in pages - {ROOT / "docs" / "requirements.md"}:
        assert not number.search(path.read_text()), path.name
    assert not number.search(build_openapi_document().decode())


def test_a_requirement_is_found_where_a_test_mentions_it(scripts):
    source = """'''Of this file: R-05.'''

def test_r61_p2_m12_by_its_name(): ...
def test_p1_31_an_item_of_a_paper(): ...

@mark
async def test_by_its_words():
    '''As A-10 to A-12 ask.'''
"""
    found = {*scripts("make_requirements").mentions_in(source)}
    assert found == {
        ("R-05", ""),
        *((one, "test_r61_p2_m12_by_its_name") for one in ("R-61", "P-2", "M-12")),
        *((one, "test_by_its_words") for one in ("A-10", "A-11", "A-12")),
    }


def test_a_requirement_without_a_sentence_is_an_error(scripts, monkeypatch):
    module = scripts("make_requirements")
    monkeypatch.setattr(module, "find_mentions", lambda _: {"R-99": {}})
    with pytest.raises(ValueError, match="tests mention R-99"):
        module.page()


def test_a_number_inside_a_sentence_is_an_error(scripts):
    plain = scripts("from_source").plain
    assert plain("Kept (R-18, R-25). Told: A-40, A-41.") == "Kept. Told."
    with pytest.raises(ValueError, match="R-18"):
        plain("As R-18 asks.")


def test_a_source_is_shown_as_it_is_spelled(scripts):
    source = scripts("from_source")

    async def asked(one: "str | None", *more: int, key: int = 10_000, **rest: object) -> int:
        """Words."""

    class Held:
        """Words."""

        first: int = 12_345
        """What it means."""
        _hidden: int = 0

    wanted = "asked(one: str | None, *more: int, key: int = 10_000, **rest: object) -> int"
    assert source.signature(asked, "asked") == f"async {wanted}"
    assert source.fields(Held) == [("first", "int", "12_345", "What it means.")]
    assert source.code("a | b") == "<code>a &#124; b</code>"


@pytest.mark.parametrize(
    ("line", "shown", "warned"),
    [
        ("[a test](../../tests/cli/test_docs.py)", "a test (`tests/cli/test_docs.py`)", 0),
        ("[test_docs.py](../../tests/cli/test_docs.py)", "`tests/cli/test_docs.py`", 0),
        ("[page](../how-to/chat.md)", "[page](../how-to/chat.md)", 0),
        ("```text\n[x](../../README.md)\n```", "```text\n[x](../../README.md)\n```", 0),
        ("[gone](../../tests/gone.py)", "[gone](../../tests/gone.py)", 1),
        ("[out](../../../elsewhere.md)", "[out](../../../elsewhere.md)", 1),
    ],
)
def test_links_out_of_the_docs(scripts, caplog, line, shown, warned):
    """A file of the repository is named by its path; what is not there is a warning."""
    hook = scripts("site_hooks").on_page_markdown
    config = {
        "docs_dir": str(ROOT / "docs"),
        "config_file_path": str(ROOT / "mkdocs.yml"),
        "extra": {},
    }
    one = SimpleNamespace(file=SimpleNamespace(src_uri="reference/cli.md"))
    assert hook(line, page=one, config=config) == shown
    assert len(caplog.records) == warned
