"""Handles: R-37, R-55."""

import pytest

from foldline.core import recall
from foldline.core.log import Logged
from foldline.core.spine import Range
from foldline.errors import BadHandle
from foldline.testing import calls, result, user


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("log:12", Range(12, 12)),
        (" [log:12] ", Range(12, 12)),
        ("12", Range(12, 12)),
        ("log:3-40", Range(3, 40)),
        ("log:3-log:40", Range(3, 40)),
    ],
)
def test_a_handle_as_a_model_may_write_it(text, span):
    assert recall.parse(text) == span


@pytest.mark.parametrize("text", ["", "log:", "log:x", "log:9-3", "log:-1", "12; drop", "9" * 40])
def test_what_is_no_handle_says_how_to_write_one(text):
    with pytest.raises(BadHandle, match="log:"):
        recall.parse(text)


def test_a_handle_reads_back_as_it_was_written():
    assert recall.parse(recall.handle(3, 40)) == Range(3, 40)
    assert recall.parse(recall.handle(3)) == Range(3, 3)


def test_one_event_is_shown_as_it_was_and_several_each_under_its_handle():
    log = [Logged(4, user("hello")), Logged(5, calls("c")), Logged(6, result("c", "out"))]
    assert recall.show(log[:1]) == "hello"
    assert recall.show(log) == (
        '[log:4 user_said]\nhello\n[log:5 model_said]\nrun {"n":"c"}\n[log:6 tool_returned]\nout'
    )
