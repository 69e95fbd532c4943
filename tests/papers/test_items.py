"""Items of the design papers that no other test shows, by their numbers in docs/papers.md."""

import re
from dataclasses import replace

import pytest

import foldline
from foldline.core.budget import UNKNOWN_WINDOW, estimate_request, limits, measure_budget
from foldline.core.edits.fold.ask import SECTIONS
from foldline.core.fold_selection import count_most_messages
from foldline.core.log import ToolReturned
from foldline.core.parts import text_of
from foldline.core.plan import Facts, Ready, admit
from foldline.core.policy import CLASSIC, PRESETS, SLIDING, THREE_LAYER
from foldline.errors import BadInput
from foldline.models.catalog import find
from foldline.session.history import measure_pace
from foldline.settings import read
from foldline.testing import Planned, calls, model, result, user, view_of

WORDS = " ".join(f"word{n}" for n in range(20_000))
PAPER_WINDOWS = {
    # Paper 1
    "gemini-1.5-pro": 2_000_000,
    "gpt-4-turbo": 128_000,
    "claude-3-opus": 200_000,
    "ollama/mistral": 32_000,
    "llama-2": 4_000,
    # Paper 2
    "claude-of-tomorrow": 200_000,
    "gpt-5": 400_000,
    "gpt-4o": 128_000,
    "x/grok-4-beta-9": 2_000_000,
    "grok-9": 131_072,
    "deepseek-v3": 163_840,
    "deepseek-chat-v3": 163_840,
    "deepseek-of-tomorrow": 128_000,
    "qwen3-of-tomorrow": 131_072,
    "qwen-of-tomorrow": 128_000,
    "llama-of-tomorrow": 128_000,
    "llama-4-of-tomorrow": 327_680,
    "mistral-large-of-tomorrow": 262_144,
    "mistral-of-tomorrow": 128_000,
    "mixtral-of-tomorrow": 128_000,
    # Paper 4
    "claude-3-5-sonnet": 200_000,
    "claude-3-haiku": 200_000,
    "ollama/llama3.2": 128_000,
    "ollama/llama3.2:1b": 8_000,
}


def answer(words, **usage):
    """A chat completion, with its usage."""
    message = {"role": "assistant", "content": words}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


@pytest.mark.parametrize("name", PAPER_WINDOWS)
def test_windows_of_the_papers(name):
    """P1-03, P2-07, P2-09 to P2-12, P4-04, P4-05: also in capitals."""
    assert find(name).window == PAPER_WINDOWS[name]
    assert find(name.upper()).window == PAPER_WINDOWS[name] or name.startswith("ollama/")


@pytest.mark.parametrize(
    ("name", "least"),
    [("gemini/2.5-flash", 1_000_000), ("gpt-4.1", 1_000_000), ("gemini-9", 10**6)],
)
def test_windows_of_about_a_million(name, least):
    """P1-04, P2-07, P2-09: the papers round, the catalogue has the exact figure."""
    assert least <= find(name).window <= least * 1.05


@pytest.mark.parametrize(("name", "window"), [("gpt-4", 8_192), ("kimi-k2.5", 262_144)])
def test_windows_that_are_the_makers_own(name, window):
    """P2-08, P5-04: differently; a request of the papers' size would be refused."""
    assert find(name).window == window


@pytest.mark.parametrize("window", [32_000, 128_000, 1_000_000])
def test_a_tenth_of_the_window_is_kept_for_the_answer(window):
    """P1-02."""
    assert limits(window, CLASSIC.reserve).reserve == window // 10


@pytest.mark.parametrize("name", PRESETS)
def test_a_thousand_messages_where_the_model_is_unknown(name):
    """P2-14: in every preset; a window that somebody stated decides by itself."""
    assert count_most_messages(limits(None, None), PRESETS[name]) == 1_000
    assert count_most_messages(limits(UNKNOWN_WINDOW, None), PRESETS[name]) != 1_000


def clipped(words, **said):
    """What is shown of a result in a session with these settings beside `classic`."""
    policy = read({"policy": "classic", "session": {"context": said}}).policy
    view = view_of([user("go"), calls("c")])
    event = admit(view, result("c", words), Facts(limits(200_000, None), policy))[0]
    return text_of(event.clip.parts) if event.clip else words


def test_the_limits_of_long_results_are_settings():
    """P1-11, M-16: bytes, lines, head lines, tail lines."""
    said = {"max_tool_result_lines": 10, "tool_result_head_lines": 2, "tool_result_tail_lines": 3}
    rows = [f"line {n}" for n in range(11)]
    assert clipped("\n".join(rows[:10]), **said) == "\n".join(rows[:10])
    first, *shown = clipped("\n".join(rows * 20), **said).splitlines()
    assert first == "Total output lines: 220"
    assert shown[:3] == ["line 0", "line 1", "[... omitted 215 of 220 lines ...]"]
    assert shown[-3:] == ["line 8", "line 9", "line 10"]
    long = "most of it is as it was. " * 400
    assert clipped(long) == long
    _, first, *_, last = clipped(f"{long}The end.", max_tool_result_bytes=1_000).splitlines()
    assert first.startswith("most of it is as it was.")
    assert last.endswith(" as it was. The end.")
    assert len(first) + len(last) == pytest.approx(1_000, abs=2)
    with pytest.raises(BadInput, match="9 first and 3 last lines are more than 10"):
        clipped("", **{**said, "tool_result_head_lines": 9})


def test_results_are_cut_on_arrival():
    """P2-22, P2-24: 8,000 tokens of the head, by default."""
    view = view_of([user("go"), calls("c")])
    event = admit(view, result("c", WORDS), Facts(limits(200_000, None), THREE_LAYER))[0]
    assert isinstance(event, ToolReturned)
    shown = text_of(event.clip.parts)
    assert shown.startswith("word0 word1 ")
    kept = int(re.search(r"kept first ~(\d+) of ~", shown)[1])
    assert 7_600 <= kept <= 8_000
    assert text_of(event.parts) == WORDS


def test_token_figures_of_a_session():
    """P1-19, P1-20, P1-23, P5-02, P5-03, P5-05, P5-19: now, and in all."""
    with foldline.open(":memory:", model="m", window=50_000) as s:
        for n in range(3):
            s.add(f"question {n} " * 200)
            s.request()
            s.add(answer("yes", prompt_tokens=1_000 + n, completion_tokens=10, total_tokens=0))
        turns = s.history.turns()
        last = turns[-1]
        assert (last.number, last.input, last.output) == (3, 1_002, 10)
        assert (sum(t.input for t in turns), sum(t.output for t in turns)) == (3_003, 30)
        report = s.report
        assert report.window == 50_000
        assert report.total >= last.input
        assert report.room + report.margin + report.reserve <= 50_000
        before = report.total
        s.fold()
        assert s.report.total < before
        assert sum(t.input for t in s.history.turns()) == 3_003, "totals are a bill, and stay"


def test_turns_that_remain_are_counted_by_growth():
    """P1-24, P1-25: each turn is sent again with the next, so the sum of turns says nothing."""
    with foldline.open(":memory:", model="m", window=20_000) as s:
        assert measure_pace(s.history.turns(), s.report).turns_left is None
        for n in range(4):
            s.add("word " * 500)
            s.request()
            s.add(answer("yes", prompt_tokens=1_000 * (n + 1), completion_tokens=1, total_tokens=0))
        pace = measure_pace(s.history.turns(), s.report)
        assert pace.growth == pytest.approx(1_000, rel=0.2)
        left = (s.report.room - s.report.total) / pace.growth
        assert pace.turns_left == pytest.approx(left, abs=1.5)


@pytest.mark.parametrize("name", sorted({*PRESETS} - {"off"}))
def test_sessions_last_at_least_ten_windows(name):
    """P1-32: whatever the preset, ten windows of words go through one."""
    policy = replace(PRESETS[name], start="auto")
    talk = Planned(Facts(limits(8_000, policy.reserve), policy))
    said = 0
    while said < 80_000:
        talk.add(user("Most of it works when it is read in one piece. " * 30))
        made = talk.plan()
        assert isinstance(made, Ready)
        talk.ask(made)
        talk.add(model("It was read. " * 60))
        said += sum(item.tokens for item in talk.view.items[-2:])
    assert talk.folds()
    assert measure_budget(talk.view, talk.facts.limits).request <= 8_000


def test_a_fold_makes_its_span_much_smaller():
    """P3-32: by more than 60 %."""
    talk = Planned(Facts(limits(128_000, None), SLIDING))
    for n in range(6):
        talk.add(user(f"question {n} " * 100))
        talk.ask(talk.plan())
        talk.add(model(f"answer {n} " * 300))
    (fold,) = talk.folds()
    assert fold.after <= 0.4 * fold.before
    assert estimate_request(talk.view) < 128_000


def test_our_question_asks_for_what_the_papers_ask_for():
    """P3-19, P5-16: their topics are our headings."""
    asked = " ".join(SECTIONS).lower()
    for topic in (
        *("decisions and outcomes", "state changes", "open questions", "pending tasks"),
        *("tool calls and their results", "facts, numbers", "file paths and code", "goals"),
    ):
        assert topic in asked
