"""Clips: A-10, A-11, R-54."""

import time
from dataclasses import replace

import pytest

from foldline.core.budget import limits
from foldline.core.edits.clip import clip_event
from foldline.core.log import ModelSaid, Opened, ToolReturned
from foldline.core.parts import Call, Media, Text, text_of
from foldline.core.plan import Facts, admit
from foldline.core.policy import STEADY, Clipping
from foldline.core.tokens import count_tokens
from foldline.testing import calls, result, view_of

WORDS = " ".join(f"word{n}" for n in range(20_000))


def shown(event):
    return text_of(view_of([calls("c"), event]).items[1].parts)


@pytest.mark.parametrize(
    ("how", "marker", "place"),
    [
        ("head", "[truncated: kept first ~{keep} of ~{whole} tokens (head)]", -2),
        ("tail", "[truncated: kept last ~{keep} of ~{whole} tokens (tail)]", 0),
        ("both", "[truncated: kept first+last ~{keep} of ~{whole} tokens (both)]", 1),
    ],
)
def test_marker_and_handle(how, marker, place):
    """A-11: the literal text first, handle and outcome on the next line."""
    event = clip_event(result("c", WORDS), cap=1_000, how=how)
    lines = shown(event).splitlines()
    kept = sum(count_tokens(line) for line in lines if not line.startswith("["))
    assert lines[place] == marker.format(keep=kept, whole=count_tokens(WORDS))
    assert count_tokens(shown(event)) <= 1_000
    assert lines[place + 1] == "[whole: log:1; ok]"
    assert count_tokens(shown(event)) >= 850
    assert text_of(event.parts) == WORDS  # the whole stays in the event


def test_by_lines():
    """A-10: over 256 lines, the first and last 128."""
    event = clip_event(result("c", "\n".join(f"{n}" for n in range(756))), cap=8_000, how="lines")
    lines = shown(event).splitlines()
    assert lines[0] == "Total output lines: 756"
    assert lines[1:3] == ["0", "1"]
    assert lines[129:132] == ["[... omitted 500 of 756 lines ...]", "[whole: log:1; ok]", "628"]
    assert lines[-1] == "755"


def test_exactly_256_lines_are_not_too_many():
    event = result("c", "x\n" * 256)
    assert clip_event(event, cap=8_000, how="lines") is event


def test_by_lines_and_bytes_at_once():
    text = "\n".join(f"line {n} " + "x " * 100 for n in range(756))
    event = clip_event(result("c", text, ok=False), cap=8_000, how="lines")
    assert (
        "[... omitted 500 of 756 lines ...]\n[... truncated for length ...]\n[whole: log:1; error]"
        in shown(event)
    )
    assert len(shown(event).encode()) <= 10 * 1024 + 200
    one_line = clip_event(result("c", "y " * 20_000), cap=8_000, how="lines")
    assert "[... truncated for length ...]" in shown(one_line)
    assert "omitted" not in shown(one_line)
    few_tokens = clip_event(
        result("c", "most of it works " * 800 + "the end"), cap=8_000, how="lines"
    )
    assert shown(few_tokens).endswith("it works the end"), "both ends stay"


def test_ends_keep_errors_status_and_names():
    """R-54, R-56: what is looked for later survives the cut, and error is told from ok."""
    noise = [f"compiled module number {n} without anything to say about it" for n in range(4_000)]
    noise[2_000] = "E   ValueError: unexpected token ']' at 41"
    noise[2_001] = "src/parser/lexer.py:88 in next_token"
    noise[2_500] = "process exited with code 2"
    event = clip_event(result("c", "\n".join(noise), ok=False), cap=2_500, how="ends")
    text = shown(event)
    assert (
        "[errors in the cut]\nE   ValueError: unexpected token ']' at 41\nprocess exited with code 2"
        in text
    )
    assert "src/parser/lexer.py" in text.split("[names in the cut]")[1].splitlines()[0]
    assert "[whole: log:1; error]" in text
    assert text.startswith("compiled module number 0")
    assert text.endswith("compiled module number 3999 without anything to say about it")
    assert 2_000 <= count_tokens(text) <= 2_500


def test_clipping_is_fast_and_safe_on_hostile_text(timed):
    """A clip of 1 MB is never seen: far below the asked 5 ms a typical result takes."""
    hostile = [
        "a" * 1_000_000,
        "a/" * 500_000,
        "_" * 1_000_000,
        "error " * 170_000,
        "\n" * 1_000_000,
    ]
    for text in hostile:
        start = time.perf_counter()
        clip_event(result("c", text), cap=2_500, how="ends")
        assert time.perf_counter() - start < timed(2.0)


def test_each_tool_has_its_own_cap():
    """A-12: what was read in full is shown whole, up to a quarter of room."""
    log = [Opened("m"), ModelSaid((Call("a", "read"), Call("b", "bash")))]
    view = view_of(log)
    called = [view.find_answered_call(one) for one in "abz"]
    assert [call and call.name for call in called] == ["read", "bash", None]
    facts = Facts(limits(200_000, None), STEADY)
    sizes = {id_: admit(view, result(id_, WORDS), facts)[0].clip.shown for id_ in "ab"}
    assert 30_000 < sizes["a"] <= 40_000
    assert 19_000 < sizes["b"] <= 25_000


@pytest.mark.parametrize("tool", ["Read", "readFile", "mcp__files__read_text_file", "fs.read"])
def test_a_reader_is_known_by_any_spelling(tool):
    assert STEADY.clipping(tool).tokens > 1_000_000
    assert STEADY.clipping(f"{tool}_status") == STEADY.clip
    mine = replace(STEADY, clips={**STEADY.clips, tool: Clipping(700, "head")})
    assert mine.clipping(tool).tokens == 700


def test_what_fits_is_left_alone():
    event = result("c", "short")
    assert clip_event(event, cap=100, how="both") is event


def test_pictures_are_not_text():
    """R-40, R-57: a clip cuts words; a picture beside them stays."""
    picture = Media("image", mime="image/png", base64="iVBO" * 100_000)
    event = clip_event(ToolReturned("c", (Text(WORDS), picture)), cap=200, how="head")
    assert event.clip.parts[-1] == picture
    small = ToolReturned("c", (Text("ok"), picture))
    assert clip_event(small, cap=200, how="head") is small


@pytest.mark.parametrize("how", ["head", "tail", "both", "lines", "ends"])
@pytest.mark.parametrize("cap", [1, 57, 60, 80])
def test_tiny_caps(how, cap):
    event = clip_event(result("c", "日本語のテキスト" * 500), cap=cap, how=how)
    assert "log:1" in shown(event)
