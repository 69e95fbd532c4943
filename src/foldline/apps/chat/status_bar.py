"""The bar below the input line, and the line after each answer: how full the window is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from foldline.core.prices import format_dollars
from foldline.draw.picture import Level, Picture, choose_level
from foldline.draw.wording import clean_line, measure_width, truncate_to_width

Pieces: TypeAlias = list[tuple[str, str]]
_COLOURS: dict[Level, str] = {"green": "ansigreen", "yellow": "ansiyellow", "red": "ansired"}
_DIM = "ansibrightblack"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_NARROW, _NAME = 60, 24
_CELLS = 16


@dataclass(frozen=True, slots=True)
class StatusFigures:
    """What the status bar shows."""

    session: str
    picture: Picture
    dollars: float | None = None
    """What was spent so far; None if no price is known."""
    more: int = 0
    """Tokens of the answer that is coming."""

    @property
    def used(self) -> int:
        """Tokens in the window."""
        return self.picture.total + self.more

    @property
    def percent(self) -> float:
        """The used share of the window, as it is printed."""
        return round(100 * self.used / self.picture.window, 1)

    @property
    def level(self) -> Level:
        """The colour of that share."""
        return choose_level(self.percent)


def draw_status_bar(figures: StatusFigures, columns: int) -> Pieces:
    """Draw the status bar in so many columns, as (style, text) pieces."""
    drawn, colour = figures.picture, _COLOURS[figures.level]
    used = f"{figures.used:,} / {drawn.window:,} ({figures.percent:.1f}%)"
    cells = _CELLS if columns >= _NARROW else _CELLS // 2
    found: Pieces = [("", "  "), *_draw_gauge(figures, cells), (colour, f" {used}")]
    room = columns - sum(measure_width(text) for _, text in found) - 1
    for text in _iterate_facts(figures):
        if measure_width(text) + 3 <= room:
            room -= measure_width(text) + 3
            found += [(_DIM, " · "), (_DIM, text)]
    if sum(measure_width(text) for _, text in found) > columns:
        return [(colour, truncate_to_width(f" {used}", columns))]
    return found


def _iterate_facts(figures: StatusFigures) -> Iterator[str]:
    """Yield the texts that follow the numbers, the most important first."""
    drawn = figures.picture
    if drawn.pressure != "calm":
        yield f"pressure {drawn.pressure}"
    yield truncate_to_width(clean_line(drawn.model).rpartition("/")[2], _NAME)
    yield truncate_to_width(clean_line(figures.session), _NAME)
    yield clean_line(drawn.policy)
    if figures.dollars is not None:
        yield format_dollars(figures.dollars)
    if drawn.folds:
        yield f"{len(drawn.folds)} fold{'' if len(drawn.folds) == 1 else 's'}"
    if drawn.pressure == "calm":
        yield "calm"


def _draw_gauge(figures: StatusFigures, cells: int) -> Pieces:
    """Draw the window as a small bar with marks at its tiers."""
    window = figures.picture.window
    eighths = min(figures.used * cells * 8 // window, cells * 8)
    tiers = {min(tokens * cells // window, cells - 1) for _, tokens in figures.picture.tiers}
    found: Pieces = [(_DIM, "▕")]
    for cell in range(cells):
        filled = min(max(eighths - cell * 8, 0), 8)
        if filled:
            found.append((_COLOURS[figures.level], _EIGHTHS[filled]))
        else:
            found.append((_DIM, "╵" if cell in tiers else "·"))
    return [*found, (_DIM, "▏")]


def render_usage_line(used: int, window: int, response: int | None = None) -> tuple[str, Level]:
    """Return the usage line that follows each answer, and its colour."""
    percent = round(100 * used / window, 1)
    length = "" if response is None else f" | response: {response:,} tokens"
    return f"[tokens: {used:,} / {window:,} ({percent:.1f}%){length}]", choose_level(percent)
