"""Masks: A-13, R-56, and the trap of `results[:-0]`."""

import pytest

from foldline.core.edits.mask import list_results, mask_results, select_middle_results
from foldline.core.parts import text_of
from foldline.core.view import shape
from foldline.testing import calls, model, result, user, view_of


def eight():
    log = [user("go")]
    for n in range(8):
        log += [calls(f"c{n}"), result(f"c{n}", f"output {n} " * 50, ok=n != 3)]
    return view_of(log)


@pytest.mark.parametrize(
    ("first", "last", "visible"),
    [
        (2, 3, [0, 1, 5, 6, 7]),
        (2, 5, [0, 1, 3, 4, 5, 6, 7]),
        (0, 0, [0, 1, 2, 3, 4, 5, 6, 7]),  # both 0 is off
        (3, 0, [0, 1, 2]),  # and only one is not
        (0, 2, [6, 7]),
        (5, 5, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_first_and_last_stay(first, last, visible):
    """A-13: of 8 results, the first N and the last M are seen."""
    view = eight()
    event = mask_results(
        view, select_middle_results(list_results(view, turn_only=True), first=first, last=last)
    )
    if event is not None:
        view.append(view.head + 1, event)
    seen = [n for n, item in enumerate(list_results(view, turn_only=True)) if item.state == "whole"]
    assert seen == visible


@pytest.mark.parametrize("count", range(9))
def test_up_to_first_and_last_nothing_is_masked(count):
    """A-13: at most N + M results, nothing masked; never from the wrong end."""
    for first, last in ((2, 5), (0, 4), (3, 0)):
        found = list(range(count))
        kept = [n for n in found if n not in select_middle_results(found, first=first, last=last)]
        assert kept == [n for n in found if n < first or n >= count - last]


def test_a_stub_says_what_how_and_where():
    """A-13, R-56: the literal text; the call and its arguments stay."""
    view = eight()
    tokens = view.items[8].tokens
    view.append(
        view.head + 1,
        mask_results(
            view, select_middle_results(list_results(view, turn_only=True), first=2, last=3)
        ),
    )
    text = text_of(view.items[8].parts)
    assert text.splitlines()[:2] == [
        f"[result masked — ~{tokens} tokens removed]",
        "[whole: log:8; error]",
    ]
    assert view.items[7].parts[0].arguments == '{"n":"c3"}'
    assert "8 result c3 [result masked" in shape(view)


def test_a_batch_below_the_least_yield_is_refused():
    view = eight()
    found = select_middle_results(list_results(view, turn_only=True), first=2, last=3)
    assert mask_results(view, found, least=100_000) is None
    small = view_of([user("go"), calls("c"), result("c", "ok")])
    assert (
        mask_results(small, list_results(small, turn_only=False)) is None
    )  # a stub would be longer


def test_only_the_current_turn_is_looked_at():
    view = view_of(
        [
            user("a"),
            calls("x"),
            result("x", "w " * 99),
            model("ok"),
            user("b"),
            calls("y"),
            result("y"),
        ]
    )
    assert [item.call_id for item in list_results(view, turn_only=True)] == ["y"]
    assert [item.call_id for item in list_results(view, turn_only=False)] == ["x", "y"]
