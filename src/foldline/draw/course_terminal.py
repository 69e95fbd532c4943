"""A session over time for a terminal: a line for each thing that is followed, a sign for each call.

Knows columns and signs. Refuses to know what the numbers mean, and to colour them: height and shape
say all. Where there are more calls than columns a sign stands for some of them, by the largest.
"""

from collections.abc import Sequence
from textwrap import wrap

from foldline.draw import course_words as words
from foldline.draw.course import HOWS, Course, CourseColumn, How, columns
from foldline.draw.text import clean, fit

SIGNS: dict[How, str] = {"fold": "▼", "mask": "□", "clip": "'"}
_LEVELS = " ▁▂▃▄▅▆▇█"
_NAME, _SAID, _LEAST = 10, 14, 8  # columns: what a line is of, what it comes to, the signs


def course_terminal(drawn: Course, width: int = 80) -> str:
    """The course as lines of at most `width` columns."""
    wide = max(width, 1)
    across = max(wide - _NAME - _SAID - 2, _LEAST)
    shown = columns(drawn, across)
    title = (words.finding(drawn), words.money(drawn), words.under(drawn))
    lines = [piece for one in title for piece in wrap(clean(one), wide)]
    if shown:
        lines += ["", *_body(drawn, shown), ""]
        lines += [piece for one in words.notes(drawn) for piece in wrap(clean(one), wide)]
    return "\n".join(fit(line, wide).rstrip() for line in lines) + "\n"


def _body(drawn: Course, shown: Sequence[CourseColumn]) -> list[str]:
    end = drawn.steps[-1].everything
    shares = [one.largest.read / (one.largest.input or 1) for one in shown]
    rows: list[tuple[str, str, str]] = [
        ("tokens", _line([one.largest.input for one in shown]), f"≤ {words.above(drawn.peak)}"),
        ("everything", _line([one.everything for one in shown]), f"≈ {words.tokens(end)} now"),
    ]
    if drawn.caches:
        share = 100 * drawn.read / (drawn.input or 1)
        rows.append(("cached", _line(shares, top=1.0), f"{share:.0f}% of all"))
    for how in HOWS:
        signs = "".join(SIGNS[how] if one.of(how) else "·" for one in shown)
        if any(one.how == how for one in drawn.later):
            signs = signs[:-1] + SIGNS[how]
        rows.append((words.NAMES[how], signs, words.taken(drawn, how)))
    if drawn.dollars is not None:
        each = [one.dollars / len(one.steps) for one in shown]
        rows.append(
            ("cost", _line(each), f"mean {words.dollars(drawn.dollars[0] / len(drawn.steps))}")
        )
    first, last = f"{shown[0].steps[0].turn:,}", f"{drawn.steps[-1].turn:,}"
    gap = " " * (len(shown) - len(first) - len(last))
    rows.append(("turn", f"{first}{gap}{last}" if gap else last, ""))
    return [f"{name:{_NAME}} {signs} {said}" for name, signs, said in rows]


def _line(sizes: Sequence[float], *, top: float = 0.0) -> str:
    """A sign as high as each size; what is more than nothing is seen."""
    most = top or max(sizes, default=0.0)
    highest = len(_LEVELS) - 1
    return "".join(
        _LEVELS[min(max(round(highest * size / most), 1), highest) if size > 0 and most else 0]
        for size in sizes
    )
