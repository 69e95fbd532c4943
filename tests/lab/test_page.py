"""The page: well-formed, closed to strangers' HTML, the same bytes, and nothing from elsewhere."""

import json
import re
from html.parser import HTMLParser

import pytest

from foldline.core.log import Instructed, ModelSaid, Opened, ToolReturned, UserSaid
from foldline.core.parts import Call, Text
from foldline.core.prices import Prices
from foldline.lab.comparison import Case, build_comparison, make_tasks, run_task
from foldline.lab.recorded import Recorded
from foldline.lab.report.page import render_comparison_page
from foldline.lab.report.plots import select_unbeaten
from foldline.lab.report.sentences import (
    format_change,
    format_dollar_amount,
    format_percent,
    format_token_count,
)

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&\x1b[2J\u202e"
PRICES = Prices(3.0, 0.3, 3.75, 15.0)
VOID = {"meta", "br", "img", "input", "link"}
DRAWN = {"path", "circle", "rect"}


def session(name: str, turns: int) -> Recorded:
    events = [Opened("m"), Instructed((Text("Be brief."),))]
    for turn in range(turns):
        body = "\n".join(f"def parse_{turn}_{at}(text): return text" for at in range(60))
        call = Call(f"c{turn}", "read", json.dumps({"path": f"src/module_{turn}.py"}))
        events += [
            UserSaid((Text(f"What is in src/module_{turn}.py?"),)),
            ModelSaid((call,)),
            ToolReturned(f"c{turn}", (Text(body),)),
            ModelSaid((Text(f"Functions, as src/module_{max(turn - 6, 0)}.py has"),)),
        ]
    return Recorded(name, EVIL, tuple(events))


@pytest.fixture(scope="module")
def told():
    cases = [
        Case(session(name, turns), PRICES, 200_000, source=EVIL, priced_as=EVIL)
        for name, turns in ((EVIL, 120), ("short", 2))
    ]
    todo = make_tasks(cases, ["steady", "thrifty", "sliding"], narratives=True)
    return build_comparison(cases, [run_task(one) for one in todo], narratives=True)


class Reader(HTMLParser):
    """Every tag is closed where it should be; what tags there are, and their attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.given, self.words = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        """Opened."""
        self.tags.add(tag)
        self.given += [(tag, *one) for one in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """Opened and closed at once."""
        self.tags.add(tag)
        self.given += [(tag, *one) for one in attrs]

    def handle_endtag(self, tag):
        """Closed."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Words between."""
        self.words.append(data)


@pytest.fixture(scope="module")
def read(told):
    reader = Reader()
    reader.feed(render_comparison_page(told))
    reader.close()
    return reader


def test_it_is_well_formed(read):
    assert read.open == []
    assert {"h1", "table", "svg", "details"} | DRAWN <= read.tags


def test_strangers_words_are_words(told, read):
    text = render_comparison_page(told)
    assert not read.tags & {"script", "img", "iframe", "link", "object"}
    assert not [one for one in read.given if one[1].startswith("on")]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&" in "".join(read.words)


def test_nothing_comes_from_elsewhere(told, read):
    assert not re.search(r"https?:|//[a-z]|url\(|@import", render_comparison_page(told))
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in read.given


def test_it_is_the_same_every_time(told):
    assert render_comparison_page(told) == render_comparison_page(told)
    again = build_comparison(
        [Case(session(EVIL, 3), PRICES, 200_000)],
        [
            run_task(one)
            for one in make_tasks([Case(session(EVIL, 3), PRICES, 200_000)], [], narratives=False)
        ],
    )
    assert "too small to fold" in render_comparison_page(again)


def test_the_headline_and_the_limits_are_there(told, read):
    words = " ".join("".join(read.words).split())
    assert " %" not in render_comparison_page(told).partition("<main>")[2], (
        "no line begins with the sign"
    )
    assert "; with steady they would have cost $" in words
    assert "Quality is not measured" in words
    assert "What steady folded away" in words
    assert all(one.policy in words for one in told.totals)
    assert not re.search(r"\bnan\b|\binf\b|None", words)


def test_the_frontier_has_who_is_beaten_by_nobody():
    points = [(1.0, 80.0), (2.0, 90.0), (3.0, 85.0), (2.0, 70.0), (9.0, 100.0)]
    assert select_unbeaten(points) == [(1.0, 80.0), (2.0, 90.0), (9.0, 100.0)]


def test_numbers_for_people():
    assert [format_dollar_amount(one) for one in (0, 0.0123, 1.234, 1_234.5)] == [
        *("$0.00", "$0.012", "$1.23", "$1,234")
    ]
    assert [format_change(one) for one in (0.2, 12.4, -73.6)] == ["±0 %", "+12 %", "−74 %"]
    assert [format_percent(one) for one in (0, 0.01, 50, 99.99, 100)] == [
        *("0.0 %", "< 0.1 %", "50.0 %", "> 99.9 %", "100.0 %")
    ]
    assert [format_token_count(one) for one in (950, 12_345, 1_250_000)] == ["950", "12k", "1.2M"]
