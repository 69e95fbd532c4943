"""The two outputs: within their width, readable without colour, safe whatever a name holds."""

import re
import unicodedata
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core.budget import limits
from foldline.core.edits.clip import clip_event
from foldline.core.log import Instructed, ModelSwitched, Opened
from foldline.core.parts import Text, Tool
from foldline.core.plan import Facts
from foldline.core.policy import CLASSIC, STEADY
from foldline.core.prices import make_prices
from foldline.core.rules import cut_points
from foldline.draw import build_picture, draw_picture_svg, draw_picture_terminal
from foldline.draw.wording import clean_line, measure_width, truncate_to_width
from foldline.testing import Conversation, calls, model, result, user, view_of
from foldline.testing.strategies import conversations

PAINT = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = (
    "gpt\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;http://x\x1b\\",
    "a\x9b31mb\x00c\r\n\td\x7f\x85e",
    "evil\u202egnp.exe\u2066\u200b\u2028\ufeff",
    "</text><script>alert('&\"')</script>]]>",
    "模型名稱很長很長很長很長很長很長很長很長很長很長很長很長很長很長很長",
    "👩‍👩‍👧‍👦❤️🏳️‍🌈 família " * 9,
    "z" + "\u0301" * 500,
    "\u0301\u0301\u0301",
    "half \ud800 a pair",
    "x" * 5_000,
    "",
)


def columns(line):
    """What a terminal would take, counted apart from the code under test."""
    total = 0
    for letter in line:
        if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me"):
            continue
        total += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
    return total


def check(drawn):
    for wide in (60, 80, 120):
        plain = draw_picture_terminal(drawn, wide, colour=False)
        painted = draw_picture_terminal(drawn, wide)
        assert PAINT.sub("", painted) == plain, "colour changes more than colour"
        for line in plain.splitlines():
            assert columns(line) <= wide, line
        assert not [one for one in plain if one != "\n" and unicodedata.category(one)[0] == "C"]
        assert "\x1b" not in PAINT.sub("", painted)
    text = draw_picture_svg(drawn)
    root = ET.fromstring(text)  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [one for one in text if one != "\n" and unicodedata.category(one)[0] == "C"]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    return root


def facts(window, policy=STEADY):
    return Facts(limits(window, None), policy, make_prices(input=5.0, read=0.5, write=6.25))


@given(
    conversations(), st.sampled_from((300, 8_192, 1_000_000)), st.sampled_from((STEADY, CLASSIC))
)
def test_every_line_fits_and_the_svg_is_well_formed(talk, window, policy):
    check(build_picture(talk.view, facts(window, policy)))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_only_a_name(name):
    talk = Conversation(name)
    talk.add(Instructed((Text("Be brief."),), (Tool(name),)), user(name, author=name))
    root = check(build_picture(talk.view, facts(8_192)))
    assert not [one for one in root.iter() if one.tag.endswith("script")]
    talk.add(ModelSwitched(name[::-1]))
    check(build_picture(talk.view, facts(8_192)))


@given(st.text(), st.integers(0, 30))
def test_a_cut_text_fits_and_is_clean(text, wide):
    shown = truncate_to_width(clean_line(text), wide)
    assert measure_width(shown) == columns(shown) <= wide
    assert clean_line(clean_line(text)) == clean_line(text)


@pytest.mark.parametrize("wide", [0, 1, 5, 20, 33, 40])
def test_a_narrow_terminal_is_not_broken(wide):
    drawn = build_picture(view_of([Opened("test/model"), user("hello")]), facts(8_192))
    lines = draw_picture_terminal(drawn, wide, colour=False).splitlines()
    assert all(columns(line) <= max(wide, 1) for line in lines)


def test_a_person_can_read_it():
    """Folds, clips and masks at 83 %, in 80 columns and without colour."""
    talk = Conversation("anthropic/claude-opus-4-5")
    talk.add(Instructed((Text("You fix parsers. " * 12),), (Tool("run", "Runs it. " * 20),)))
    for turn in range(5):
        talk.add(user(f"Task {turn}: make the parser tests pass, please."))
        found = result("c", f"test_{turn} failed: no such token\n" * 55 * (1 + turn % 2))
        talk.add(calls("c"), clip_event(found, cap=500, how="ends"))
        talk.ask()
        talk.add(model(f"In {turn} the lexer loses a token. " * 24))
    talk.fold(cut_points(talk.view)[3], cap=150)
    results = [item.seq for item in talk.view.items if item.role == "result"]
    talk.mask(results[:1])
    talk.ask()
    talk.add(user("And now the docs. " * 20))
    drawn = build_picture(talk.view, facts(3_200, CLASSIC))
    assert "\n" + draw_picture_terminal(drawn, 80, colour=False) == EXAMPLE


EXAMPLE = """
anthropic/claude-opus-4-5                                  2,637 / 3,200 (82.4%)
pressure hard · policy classic · tokens estimated · window as given

 SSTT≡≡≡░▒▒▒▒█░░░░░░░░░░░░▒▒▒▒▒░░░░░░░░░░▒▒▒▒▒▒░░░░░░░░░░░▒▒▒▒▒███------=======
 SST≡≡≡▒▒▒▒▒▒▒░░░░░░░░░░░▒▒▒▒▒█░░░░░░░░░░▒▒▒▒█░░░░░░░░░░░░▒▒▒▒▒██------========
 STT≡≡≡░▒▒▒▒▒▒░░░░░░░░░░░▒▒▒▒▒▒░░░░░░░░░▒▒▒▒▒█░░░░░░░░░░░░▒▒▒▒███------========
                                    warn 1,920 ▲       ▲ soft 2,240
                                                             ▲ hard 2,487
 0                              column = 41                               3,200

  part         tokens   share
S system           62    1.9%
T tools            79    2.5%  1 tool
≡ handoffs        117    3.7%  fold 0–7: 5 messages, 726 → 117
█ user            162    5.1%  4 messages
▒ model           852   26.6%  8 messages
░ results       1,365   42.7%  4 results; masked 1: 19 of 938 shown
                               clipped 1: 379 of 938 shown
  request       2,637   82.4%  room for the conversation: 2,419
· free              0    0.0%
- margin          243    7.6%  kept for errors of the count
= reserve         320   10.0%  kept for the answer

cache   2,532 tokens as last sent, read from the cache if it is warm; 105 new
cost    next call $0.0019 for its input, $0.0132 if nothing were cached
full    77 tokens too many to be sent as it is
"""
