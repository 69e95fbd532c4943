"""Texts that are hard to clip by structure: hostile ones, and very long ones of every kind."""

import time
from random import Random

import pytest
from printed_texts import KINDS

from foldline.core.edits.clip import clip_event
from foldline.core.parts import text_of
from foldline.core.tokens import count_tokens
from foldline.testing import calls, result, view_of


def clip(text, cap):
    return clip_event(result("c", text), cap=cap, how="ends")


def show(event):
    return text_of(view_of([calls("c"), event]).items[1].parts)


def stretch(text):
    return (text * (5_000_000 // len(text) + 1))[:5_000_000]


HOSTILE = [
    "2024-05-06 12:00:00 ERROR a\n" + stretch("2024-05-06 _-_-_-a"),
    stretch("2024-05-06 a- a- \n"),
    "=== RUN x\n" * 20 + stretch("___ . . .s F ___ ok PASS FAIL\n"),
    "=== RUN x\n" * 20 + stretch("_" * 9_999 + "\n"),
    "=" * 20 + " test session starts " + "=" * 20 + "\n" + stretch("= = 1 passed, in = "),
    "Traceback (most recent call last):\n" + stretch("    at a\n"),
    "Traceback (most recent call last):\n" + stretch("    at " + " a:(" * 99 + "\n"),
    stretch("["),
    stretch('{"a":['),
    "[" + stretch("{},") + "1]",
    "[" + stretch("1,") + "1]",
    "[" + stretch("1" + " " * 60 + ",") + "1]",
    "[" + stretch("1, " + "0" * 60 + "1, ").replace("0", "2") + "1]",
    "[" + stretch('{"error":' + '"' + "a" * 99 + '"},') + "1]",
    stretch('{"error": 1' + "0" * 300 + "}\n"),
    "diff --git a/x b/x\n" * 20 + stretch("@@ -1 +1 @@\n"),
    "diff --git a/x b/x\n@@ -1 +1\n" * 20 + stretch("--- a\n"),
    stretch("diff --git a/x b/x\n@@ -1 +1\n"),
    "On branch a\n\tmodified: a\n" + stretch("\tmodified: " + "/a" * 99 + "\n"),
    stretch(" M a/b/{c\n"),
    f"commit {'a' * 40}\n" + stretch("    " + " " * 99 + "\n"),
    stretch(f"commit {'a' * 40}\n"),
    stretch("| / \\ 1234567 (a) a\n"),
    stretch("a.py:1:a\n"),
    stretch("a.py" + "-1" * 99 + ":\n"),
    stretch("|  " * 99 + "`-- a\n"),
    stretch("./a/b.c\n"),
    stretch("/" * 99 + "a\n"),
    stretch("1,2,3\n"),
    stretch("a,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,1\n"),
    "NAME  AGE  ID\n" + stretch("a" + " " * 99 + "1  1\n"),
    stretch("| a | b |\n"),
    stretch("\n"),
    stretch("a\n"),
]


@pytest.mark.parametrize("index", range(len(HOSTILE)))
def test_hostile_text_is_clipped(index):
    """300 kB of it: whatever it is taken for, nothing is raised and the cap holds."""
    event = clip(HOSTILE[index][:300_000], 2_500)
    assert count_tokens(show(event)) <= 2_500


@pytest.mark.parametrize("index", range(len(HOSTILE)))
def test_hostile_text_takes_linear_time(index, timed):
    """5 MB, and as many of its lines as are looked at one by one."""
    for text in (HOSTILE[index], "\n".join(HOSTILE[index].split("\n")[:99_000])):
        start = time.perf_counter()
        event = clip(text, 2_500)
        assert time.perf_counter() - start < timed(3.0)
        assert count_tokens(show(event)) <= 2_500


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_much_text_takes_little_time(kind, timed):
    text = KINDS[kind][1](Random(1), 900)
    text = text * (1_000_000 // len(text) + 1)
    start = time.perf_counter()
    clip(text, 2_500)
    assert time.perf_counter() - start < timed(1.0)
