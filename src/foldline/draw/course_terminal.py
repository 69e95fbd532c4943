"""Draw a session over time for a terminal: a line per quantity, a sign per call, no colours.

With more calls than columns, a sign shows several calls, by the largest of them.
"""

from collections.abc import Sequence
from textwrap import wrap

from foldline.draw import course as words
from foldline.draw.course import HOWS, Course, CourseColumn, How, build_course_columns
from foldline.draw.wording import clean_line, truncate_to_width

SIGNS: dict[How, str] = {"fold": "▼", "mask": "□", "clip": "'"}
_LEVELS = " ▁▂▃▄▅▆▇█"
_NAME, _SAID, _LEAST = 10, 14, 8  # columns: the name of a line, its sum, at least for signs


def course_terminal(drawn: Course, width: int = 80) -> str:
    """Draw a course in lines of at most `width` columns."""
    wide = max(width, 1)
    across = max(wide - _NAME - _SAID - 2, _LEAST)
    shown = build_course_columns(drawn, across)
    title = (
        words.describe_course(drawn),
        words.describe_course_cost(drawn),
        words.render_course_subtitle(drawn),
    )
    lines = [piece for one in title for piece in wrap(clean_line(one), wide)]
    if shown:
        lines += ["", *_draw_rows(drawn, shown), ""]
        lines += [
            piece for one in words.explain_estimates(drawn) for piece in wrap(clean_line(one), wide)
        ]
    return "\n".join(truncate_to_width(line, wide).rstrip() for line in lines) + "\n"


def _draw_rows(drawn: Course, shown: Sequence[CourseColumn]) -> list[str]:
    end = drawn.steps[-1].everything
    shares = [one.largest.read / (one.largest.input or 1) for one in shown]
    rows: list[tuple[str, str, str]] = [
        (
            "tokens",
            _draw_sparkline([one.largest.input for one in shown]),
            f"≤ {words.format_token_ceiling(drawn.peak)}",
        ),
        (
            "everything",
            _draw_sparkline([one.everything for one in shown]),
            f"≈ {words.format_tokens(end)} now",
        ),
    ]
    if drawn.caches:
        share = 100 * drawn.read / (drawn.input or 1)
        rows.append(("cached", _draw_sparkline(shares, top=1.0), f"{share:.0f}% of all"))
    for how in HOWS:
        signs = "".join(SIGNS[how] if one.select_edits(how) else "·" for one in shown)
        if any(one.how == how for one in drawn.later):
            signs = signs[:-1] + SIGNS[how]
        rows.append((words.NAMES[how], signs, words.describe_edits(drawn, how)))
    if drawn.dollars is not None:
        each = [one.dollars / len(one.steps) for one in shown]
        rows.append(
            (
                "cost",
                _draw_sparkline(each),
                f"mean {words.format_dollars(drawn.dollars[0] / len(drawn.steps))}",
            )
        )
    first, last = f"{shown[0].steps[0].turn:,}", f"{drawn.steps[-1].turn:,}"
    gap = " " * (len(shown) - len(first) - len(last))
    rows.append(("turn", f"{first}{gap}{last}" if gap else last, ""))
    return [f"{name:{_NAME}} {signs} {said}" for name, signs, said in rows]


def _draw_sparkline(sizes: Sequence[float], *, top: float = 0.0) -> str:
    """Draw each size as a sign of its height; anything above 0 is visible."""
    most = top or max(sizes, default=0.0)
    highest = len(_LEVELS) - 1
    return "".join(
        _LEVELS[min(max(round(highest * size / most), 1), highest) if size > 0 and most else 0]
        for size in sizes
    )
