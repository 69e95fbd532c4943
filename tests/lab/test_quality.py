"""Answers are judged by what they contain, files go on where they end, and money is not exceeded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core.log import UsageReported
from foldline.core.prices import Prices, split_usage
from foldline.errors import BadInput
from foldline.lab.answer_file import AnswerFile, MoneySpent, RunMoney
from foldline.lab.planted import UNKNOWN, PlantedFact
from foldline.lab.quality import QualityRun, choose_arms, judge_answer, make_cases
from foldline.models.servers import is_own_address

CORRECTED = PlantedFact("corrected", "user", "north gate", "Which port?", "Bo Ek", stale="4000")
NEVER = PlantedFact("never", "user", "north gate", "Which port?", UNKNOWN)
ROWS = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3), max_size=8)
PRICES = Prices(3.0, 0.3, 3.75, 15.0)


@pytest.mark.parametrize(
    ("fact", "said", "verdict"),
    [
        (CORRECTED, "It is BO EK.", "right"),
        (CORRECTED, "Bo Ek, no longer 4000", "right"),
        (CORRECTED, "4000", "stale"),
        (CORRECTED, "unknown", "unknown"),
        (CORRECTED, "5000", "wrong"),
        (NEVER, "Unknown.", "right"),
        (NEVER, "5000", "wrong"),
    ],
)
def test_an_answer_is_judged_by_what_it_contains(fact, said, verdict):
    assert judge_answer(fact, said) == verdict


def check_going_on(folder, rows, cut):
    """However a file was cut, what is read is a beginning, and the rest can be added."""
    path = folder / "answers.jsonl"
    path.unlink(missing_ok=True)
    file = AnswerFile(path, {"seed": 1})
    for key, row in enumerate(rows):
        file.add_row(str(key), row)
    if not rows:
        return
    body = path.read_bytes()
    head = body.index(b"\n") + 1
    path.write_bytes(body[: head + round(cut * (len(body) - head))])
    again = AnswerFile(path, {"seed": 1})
    assert [*again.rows.items()] == [*file.rows.items()][: len(again.rows)]
    for key, row in [*file.rows.items()][len(again.rows) :]:
        again.add_row(key, row)
    assert AnswerFile(path, {"seed": 1}).rows == file.rows
    assert path.read_bytes() == body


@given(rows=ROWS, cut=st.floats(0, 1))
def test_a_file_goes_on_where_it_was_cut(tmp_path_factory, rows, cut):
    check_going_on(tmp_path_factory.getbasetemp(), rows, cut)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("body.rfind(b", "len(body) or (b"),
        ("if len(whole) < len(body):", "if False:"),
    ],
)
def test_a_file_that_keeps_half_a_line_is_caught(tmp_path, line, instead):
    with (
        broken("foldline.lab.answer_file", line, instead),
        pytest.raises((AssertionError, BadInput)),
    ):
        check_going_on(tmp_path, [{"said": "one"}, {"said": "two"}], 0.7)


def test_no_answer_is_written_twice(tmp_path):
    file = AnswerFile(tmp_path / "a", {})
    file.add_row("1", {})
    with pytest.raises(ValueError, match="answered already"):
        file.add_row("1", {})


def check_money(folder, calls, most):
    """What is spent never exceeds the most, as long as calls take what they say."""
    path = folder / "money.jsonl"
    path.unlink(missing_ok=True)
    money = RunMoney(AnswerFile(path, {}), PRICES, most)
    for number, (tokens_in, tokens_out, share) in enumerate(calls):
        try:
            money.must_have(tokens_in, tokens_out)
        except MoneySpent:
            return
        read = round(tokens_in * share)
        used = UsageReported(input=tokens_in, cache_write=tokens_in - read, output=tokens_out)
        money.file.add_row(str(number), {"dollars": money.compute_dollars(split_usage(used))})
        assert money.file.dollars <= most


CALLS = st.lists(
    st.tuples(st.integers(0, 100_000), st.integers(0, 4_000), st.floats(0, 1)), max_size=8
)


@given(calls=CALLS, most=st.floats(0, 1))
def test_money_is_not_exceeded(tmp_path_factory, calls, most):
    check_money(tmp_path_factory.getbasetemp(), calls, most)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("if self.file.dollars + spent + would > self.most:", "if self.file.dollars > self.most:"),
        (
            "return estimate_cost(self.prices, tokens_in, tokens_out).dollars if",
            "return estimate_cost(self.prices, tokens_in, tokens_out).dollars / 1.5 if",
        ),
    ],
)
def test_a_call_that_is_not_weighed_is_caught(tmp_path, line, instead):
    with broken("foldline.lab.answer_file", line, instead), pytest.raises(AssertionError):
        check_money(tmp_path, [(100_000, 0, 0.0)] * 3, 0.374)


def test_everything_is_left_out_where_it_does_not_fit():
    run = QualityRun(model="m", window=2_048)
    cases = [*make_cases(run, 2)]
    assert [*make_cases(run, 2)] == cases
    arms = ("everything", "policy")
    assert choose_arms(run, arms, cases, 32_000) == (arms, [])
    left, notes = choose_arms(run, arms, cases, 3_000)
    assert left == ("policy",)
    assert "the model's real window is 3,000" in notes[0]
    assert choose_arms(run, arms, cases, None)[0] == ("policy",)


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://192.168.1.7/v1", True),
        ("http://box:8080/v1", True),
        ("http://box.lan/v1", True),
        ("https://api.example.com/v1", False),
        ("http://8.8.8.8/v1", False),
    ],
)
def test_a_server_of_ones_own_costs_nothing(url, own):
    assert is_own_address(url) == own
