"""What reaches the terminal: words of strangers made safe, markdown as it comes, the bar."""

import re
import unicodedata
from itertools import groupby, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from prompt_toolkit.formatted_text import ANSI, to_formatted_text

from foldline.apps.chat import status_bar
from foldline.apps.chat.approval_prompt import explain_fault
from foldline.apps.chat.input_line import parse_lines
from foldline.apps.chat.markdown import MarkdownStream, render_markdown
from foldline.apps.chat.safe import Safe, clean_text
from foldline.core.plan import Facts
from foldline.draw.picture import build_picture
from foldline.draw.wording import measure_width
from foldline.errors import BadInput
from foldline.session.model_facts import build_facts
from foldline.testing import model, user, view_of

SGR = re.compile(r"\x1b\[[0-9;]*m")
STEERING = st.sampled_from(
    ["\x1b", "[", "]", "\x9b", "\x9d", "\x90", "P", "0;", "8;;http://x", "\x07", "\x1b\\", "\x9c",
     "31m", "2J", "\u202e", "\u2066", "\r", "\x08", "\n", "\t", "```", "# ", "- ", "|a|b|\n|-|-|\n",
     "&#27;", "&#x9b;", "&#x202e;", "&#8294;", "&#13;", "&ZeroWidthSpace;", "&rlm;", "&shy;", "&#x301;", "&#x20dd;",
     "<http://a/%E2%80%AE%0D", ">", "[x](", ")", "![", "*", "\u0301"]
)  # fmt: skip
TEXTS = st.lists(st.one_of(STEERING, st.text(max_size=8)), max_size=30).map("".join)


def unsafe(text):
    return [
        letter for letter in text
        if letter not in "\n\t\u200c\u200d" and unicodedata.category(letter) in ("Cc", "Cf", "Cs")
    ]  # fmt: skip


def most_marks(text):
    """The longest run of combining marks."""
    runs = groupby(text, lambda letter: unicodedata.category(letter) in ("Mn", "Me"))
    return max((len([*run]) for marks, run in runs if marks), default=0)


def pieces(text, cuts):
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[lo:hi] for lo, hi in pairwise(places)]


@given(TEXTS, st.lists(st.integers(0, 1_000), max_size=8))
@example("\x1b]0;title\x07shown", [3])
@example("\x1b", [])
def test_nothing_steers_however_it_is_cut(text, cuts):
    flow = Safe()
    fed = "".join(map(flow.feed, pieces(text, cuts)))
    assert unsafe(fed) == []
    assert fed == clean_text(text), "the same, however it came"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("👨\u200d👩\u200d👧 and 🏳\ufe0f\u200d🌈", "👨\u200d👩\u200d👧 and 🏳\ufe0f\u200d🌈"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("rm\u200d -rf", "rm -rf"),
        ("\u200dx", "x"),
        ("👩\u200d\u200d\u200d👩", "👩\u200d👩"),
        ("👩\n\u200d👩", "👩\n👩"),
    ],
)
def test_c8_a_joiner_stays_where_letters_need_it_and_hides_nothing(text, shown):
    assert clean_text(text) == shown
    assert "".join(map(Safe().feed, text)) == shown


@given(st.binary(max_size=200))
def test_bytes_of_any_kind(body):
    for text in (body.decode("latin-1"), body.decode("utf-8", "surrogateescape")):
        assert unsafe(clean_text(text)) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\a", "a"),
        ("\x9b31ma\x9d0;t\x9cb", "ab"),
        ("\x1b[38;5;1mred\x1b[0m", "red"),
        ("a\u202eb\u2066c\u200bd", "abcd"),
        ("\x1b]0;never ended\nthe next line", "\nthe next line"),
        ("\x1b\x1b[31mx", "x"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("e\u0301\u0301\u0301\u0301", "e\u0301\u0301"),
        ("\x1b(Bx", "x"),
    ],
)
def test_whole_sequences_go(text, shown):
    assert clean_text(text) == shown
    flow = Safe()
    assert "".join(flow.feed(letter) for letter in text) == shown


@given(TEXTS, st.lists(st.integers(0, 1_000), max_size=8), st.integers(20, 120))
@example("&#x202e;a&#x200b;", [], 40)
@example("x" + "&#x301;" * 9, [], 40)
def test_markdown_of_any_kind_writes_no_controls_but_its_colours(text, cuts, columns):
    said = MarkdownStream(columns)
    out = (
        "".join(said.feed(piece) + said.render_rest(5) for piece in pieces(text, cuts))
        + said.finish_answer()
    )
    plain = SGR.sub("", out)
    assert "\x1b" not in plain
    assert unsafe(plain) == []
    assert most_marks(plain) <= 2


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("a &amp; b &lt;c&gt; &copy;", "a & b <c> ©"),
        ("run `ok` &#x202e;txet&#x202c; a&#x200b;b", "run ok txet ab"),
        ("x" + "&#x301;" * 200 + "y", "x\u0301\u0301y"),
        ("x\u0301\u0301*\u0301\u0301y*", "x\u0301\u0301y"),
        ("<http://a.example/%E2%80%AEb>", "http://a.example/b (http://a.example/%E2%80%AEb)"),
        ("`&#x202e;` stays as written", "&#x202e; stays as written"),
    ],
)
def test_what_an_entity_stands_for_is_shown_and_steers_nothing(source, shown):
    assert render_markdown(source, 100, colour=False) == f"{shown}\n"


ANSWER = """# A title

Some *words* with `code` and a [link](http://x.example/y).

1. one
2. two

```python
def f():
    return "[bold]no markup[/bold]"
```

| a | b |
|---|---|
| 1 | 2 |

<div>tags are words</div>

> quoted

The end.
"""


@given(st.lists(st.integers(0, len(ANSWER)), max_size=12))
def test_an_answer_looks_the_same_however_it_came(cuts):
    said = MarkdownStream(80, colour=False)
    out = "".join(map(said.feed, pieces(ANSWER, cuts))) + said.finish_answer()
    assert out == render_markdown(ANSWER, 80, colour=False)


def test_what_an_answer_says_is_all_there():
    text = render_markdown(ANSWER, 80, colour=False)
    for word in ("A title", "code", "link", "http://x.example/y", " 2 two", "[bold]no markup[/bold]",
                 "<div>tags are words</div>", "quoted", "The end."):  # fmt: skip
        assert word in text
    assert "\x1b]8" not in render_markdown(ANSWER, 80)
    assert "\x1b[" in render_markdown(ANSWER, 80)


def test_a_block_is_written_when_the_next_one_begins_and_not_twice():
    said = MarkdownStream(80, colour=False)
    assert said.feed("one\n") == ""
    assert said.render_rest(10) == "one"
    assert said.feed("\ntwo") == "one\n"
    assert said.feed(" and\n") == ""
    assert said.render_rest(10) == "\ntwo and"
    assert said.finish_answer() == "\ntwo and\n"
    assert said.finish_answer() == ""


@pytest.mark.parametrize(
    ("used", "level"),
    [(0, "green"), (6_994, "green"), (6_996, "yellow"), (8_994, "yellow"), (8_996, "red"), (12_000, "red")],
)  # fmt: skip
def test_a42_levels(used, level):
    """The colour is that of the number as it is printed: 69.9 is green, 70.0 is yellow."""
    line, found = status_bar.render_usage_line(used, 10_000, 850)
    assert found == level
    assert line.endswith("| response: 850 tokens]")


def test_a42_literally():
    line, level = status_bar.render_usage_line(12_450, 128_000, 850)
    assert line == "[tokens: 12,450 / 128,000 (9.7%) | response: 850 tokens]"
    assert level == "green"


def stand(words=40, window=2_000, session="main"):
    facts: Facts = build_facts("gpt-5", window=window, reserve=100, policy="steady")
    view = view_of([user("words " * words), model("fine " * words)])
    return status_bar.StatusFigures(session, build_picture(view, facts), 0.0123)


@given(st.integers(1, 200), st.integers(0, 4_000), st.text(max_size=30))
def test_the_bar_fits_whatever_its_width(columns, words, session):
    text = "".join(
        piece for _, piece in status_bar.draw_status_bar(stand(words, session=session), columns)
    )
    assert measure_width(text) <= columns
    assert "\n" not in text


def test_the_bar_tells_where_it_stands():
    text = "".join(piece for _, piece in status_bar.draw_status_bar(stand(), 100))
    assert "/ 2,000 (" in text
    for word in ("main", "steady", "$0.0123", "╵"):
        assert word in text
    full = status_bar.draw_status_bar(stand(2_000), 100)
    assert ("ansired", "█") in full
    assert any("pressure hard" in piece for _, piece in full)


def test_a_missing_key_says_what_to_do():
    text = explain_fault(BadInput("no key for 'gpt-5': set OPENAI_API_KEY; …"))
    assert "foldline chat --continue" in text


@pytest.mark.parametrize(("first", "line"), [("```python\n", "print({})\n"), ("", "- item {}\n")])
def test_a_long_block_is_not_drawn_as_a_whole_with_every_line(first, line, monkeypatch):
    """What is drawn and parsed grows with the block, not with its square."""
    said, worked = MarkdownStream(100), []
    parse = MarkdownIt.parse
    monkeypatch.setattr(
        MarkdownIt, "parse", lambda one, text: (worked.append(len(text)), parse(one, text))[1]
    )
    said.feed(first)
    text = ""
    for at in range(1_500):
        text += said.feed(line.format(at)) + (said.render_rest(20) if at % 50 == 0 else "")
    assert "1450" in said.render_rest(60)
    assert sum(worked) < 120 * 1_500 * len(line)
    assert "1499" in text + said.finish_answer()


@given(
    st.lists(
        st.one_of(
            st.text(
                st.characters(codec="utf-8", exclude_characters="\x1b\x9b\x01\x02\r"), max_size=9
            ),
            st.sampled_from(["\n", "\x1b[1m", "\x1b[0m", "\x1b[2;31m", "\x1b[38;5;9m"]),
        )
    ).map("".join)
)
def test_unfinished_lines_have_the_letters_and_styles_of_their_text(text):
    lines = parse_lines(text)
    letters = [(style, letter) for line in lines for style, said in line for letter in said]
    wanted = [(style, letter) for style, said in to_formatted_text(ANSI(text)) for letter in said]
    assert letters == [one for one in wanted if one[1] != "\n"]
    assert len(lines) == (sum(letter == "\n" for _, letter in wanted) + 1 if text else 0)
    assert all(one[0] != other[0] for line in lines for one, other in pairwise(line))
