"""Words as Telegram shows them: always valid, never too long, nothing lost."""

from html import unescape

import pytest
from fake_telegram.messages import Entities
from hypothesis import example, given
from hypothesis import strategies as st

from foldline.apps.bot import html as marks
from foldline.apps.bot.bot_api import ChatPlace, make_chat_place, parse_session_name
from foldline.apps.bot.commands import CommandGiven, parse_bot_command, parse_button

_WRITTEN = st.lists(
    st.sampled_from(
        ["**", "*", "_", "__", "~~", "`", "```", "```py\n", "\n", "\n\n", "> ", "- ", "# ", "| a |", "[x](http://y.z)", "[x](", "<b>", "</i>", "&amp;", "&", "😀", "word ", "a_b_c "]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(_WRITTEN)
def test_whatever_a_model_writes_is_valid_html(text):
    shown = Entities.read(marks.html(text))
    assert marks.count_utf16_units(shown) <= marks.count_utf16_units(text)


@given(_WRITTEN, st.integers(40, 300))
def test_parts_fit_and_hold_every_letter_in_order(text, most):
    parts = marks.split_message_text(text, most)
    assert all(0 < marks.count_utf16_units(part) <= most for part in parts)
    letters = iter("".join(parts))
    assert all(letter in letters for letter in text if letter.isalnum() or letter == "😀")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**bold** and *it* & `x < y`", "<b>bold</b> and <i>it</i> &amp; <code>x &lt; y</code>"),
        ("snake_case_name and 2*3*4", "snake_case_name and 2*3*4"),
        ("# Head\n- one\n- two", "<b>Head</b>\n• one\n• two"),
        ("```py\na < b\n```\nend", '<pre><code class="language-py">a &lt; b</code></pre>\nend'),
        ("```\nnot closed", "<pre>not closed</pre>"),
        ("[t](https://a.b/c?d=1&e) [u](javascript:x)", '<a href="https://a.b/c?d=1&amp;e">t</a> [u](javascript:x)'),
        ("> said\n> twice", "<blockquote>said\ntwice</blockquote>"),
        ("~~no~~ __yes__", "<s>no</s> <b>yes</b>"),
        ("```The answer is 42, and", "The answer is 42, and"),
        ("```The answer is\n42\n```\nend", "The answer is\n<pre>42</pre>\nend"),
        ("~~~ 42 is the **answer**", "42 is the <b>answer</b>"),
        ('```py title="a.py"\nx\n```', 'py title="a.py"\n<pre>x</pre>'),
        ("```😀 all is well", "😀 all is well"),
        ("```42\n```", "42"),
        ("```c++\nx\n```", '<pre><code class="language-c++">x</code></pre>'),
        ("# C#", "<b>C#</b>"),
        ("## Head ##", "<b>Head</b>"),
    ],
)  # fmt: skip
def test_markdown_in_telegrams_tags(text, html):
    assert marks.html(text) == html


_WORDS = st.sampled_from(["zebra", "Yes", "42", "x1", "C#", "f()", "größe", "да", "b.py", "😀"])
_JOINS = st.sampled_from([" ", " ", "\n", "\n\n", "```", "\n```", "\n```\n", "~~~", "\n~~~~ ", "**", "*", "_", "`", " # ", "\n# ", "\n> ", "\n- ", "\n| ", "[", "](http://a.b/", ")", "~~", "---\n"])  # fmt: skip


@example([("```", "Yes"), (" ", "42"), ("\n", "zebra")], 300)
@given(st.lists(st.tuples(_JOINS, _WORDS), max_size=60), st.integers(60, 300))
def test_every_word_of_an_answer_is_sent(pieces, most):
    """Also those on a fence, after a heading's signs or in a link."""
    text = "".join(map("".join, pieces))
    parts = marks.split_message_text(text, most)
    sent = unescape("".join(part if _is_blank(part) else marks.html(part) for part in parts))
    for _, word in pieces:
        assert sent.count(word) >= text.count(word), word


def _is_blank(part):
    """Whether the API takes no message of it, so that it is sent plain."""
    return not Entities.read(marks.html(part)).strip()


def test_code_that_is_cut_is_closed_and_opened_again():
    text = "```py\n" + "\n".join(f"line {n}" for n in range(40)) + "\n```"
    parts = marks.split_message_text(text, 120)
    assert len(parts) > 2
    assert all(part.startswith("```py\n") and part.endswith("\n```") for part in parts)


def test_paragraphs_are_cut_between():
    first, second = "one " * 20, "two " * 20
    assert marks.split_message_text(f"{first}\n\n{second}", 120) == [first.strip(), second]


def test_a44_the_footer_is_literal():
    assert marks.render_usage_footer(12_450, 128_000) == "📊 Context: 12,450/128,000 (9.7%)"


@given(
    st.integers(-(10**13), 10**13).filter(bool),
    st.none() | st.integers(1, 10**9),
    st.integers(1, 10**12),
    st.sampled_from(["chat", "user"]),
)
def test_a_name_leads_back_to_its_place(chat, topic, user, by):
    place = make_chat_place(chat, topic=topic, user=user, by=by)
    assert parse_session_name(place.name) == place


def test_names_of_others_are_no_places():
    assert [parse_session_name(one) for one in ("main", "tg-", "tg-x", "tg-5-", "xtg-5")] == [
        None
    ] * 5
    assert ChatPlace(5).name == "tg-5"
    assert ChatPlace(-100, 7).name == "tg--100-7"


def test_commands_are_read_with_the_bots_name_and_lines():
    assert parse_bot_command("/Compact@me keep it", "Me") == CommandGiven("compact", "keep it")
    assert parse_bot_command("/compact\nkeep it", "me") == CommandGiven("compact", "keep it")
    assert parse_bot_command("/compact@other", "me") is None
    assert parse_button("compact", "…\nFocus: the parser") == CommandGiven("compact", "the parser")
