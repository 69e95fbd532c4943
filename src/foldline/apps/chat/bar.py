"""The bar below the line, and the line after each answer: where the window stands.

Knows columns, and what to leave out first where they are few. Refuses to know the terminal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.draw.picture import Picture
from foldline.draw.text import clean, fit, width

Level: TypeAlias = Literal["green", "yellow", "red"]
Pieces: TypeAlias = list[tuple[str, str]]
_COLOURS: dict[Level, str] = {"green": "ansigreen", "yellow": "ansiyellow", "red": "ansired"}
_DIM = "ansibrightblack"
_YELLOW, _RED = 70, 90
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_CELLS = 16
_NARROW, _NAME = 60, 24


@dataclass(frozen=True, slots=True)
class Stand:
    """What the bar tells."""

    session: str
    picture: Picture
    dollars: float | None = None
    """What was spent so far; None where no price is known."""
    more: int = 0
    """Tokens that are being said just now."""

    @property
    def used(self) -> int:
        """What the window holds."""
        return self.picture.total + self.more

    @property
    def percent(self) -> float:
        """Of the window, as it is printed."""
        return round(100 * self.used / self.picture.window, 1)

    @property
    def level(self) -> Level:
        """A-42: green below 70 %, yellow below 90 %, else red."""
        return level(self.percent)


def level(percent: float) -> Level:
    """The colour of a share, as it is printed."""
    return "green" if percent < _YELLOW else "yellow" if percent < _RED else "red"


def pieces(stand: Stand, columns: int) -> Pieces:
    """The bar in so many columns, each piece with its style."""
    drawn, colour = stand.picture, _COLOURS[stand.level]
    used = f"{stand.used:,} / {drawn.window:,} ({stand.percent:.1f}%)"
    cells = _CELLS if columns >= _NARROW else _CELLS // 2
    found: Pieces = [("", "  "), *_gauge(stand, cells), (colour, f" {used}")]
    room = columns - sum(width(text) for _, text in found) - 1
    for text in _facts(stand):
        if width(text) + 3 <= room:
            room -= width(text) + 3
            found += [(_DIM, " · "), (_DIM, text)]
    if sum(width(text) for _, text in found) > columns:
        return [(colour, fit(f" {used}", columns))]
    return found


def _facts(stand: Stand) -> Iterator[str]:
    """What is said behind the numbers, the most wanted first."""
    drawn = stand.picture
    if drawn.pressure != "calm":
        yield f"pressure {drawn.pressure}"
    yield fit(clean(drawn.model).rpartition("/")[2], _NAME)
    yield fit(clean(stand.session), _NAME)
    yield clean(drawn.policy)
    if stand.dollars is not None:
        yield money(stand.dollars)
    if drawn.folds:
        yield f"{len(drawn.folds)} fold{'' if len(drawn.folds) == 1 else 's'}"
    if drawn.pressure == "calm":
        yield "calm"


def _gauge(stand: Stand, cells: int) -> Pieces:
    """The window as a small bar; the marks are its tiers."""
    window = stand.picture.window
    eighths = min(stand.used * cells * 8 // window, cells * 8)
    tiers = {min(tokens * cells // window, cells - 1) for _, tokens in stand.picture.tiers}
    found: Pieces = [(_DIM, "▕")]
    for cell in range(cells):
        filled = min(max(eighths - cell * 8, 0), 8)
        if filled:
            found.append((_COLOURS[stand.level], _EIGHTHS[filled]))
        else:
            found.append((_DIM, "╵" if cell in tiers else "·"))
    return [*found, (_DIM, "▏")]


def money(dollars: float) -> str:
    """An amount for people."""
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def after(used: int, window: int, response: int | None = None) -> tuple[str, Level]:
    """The line after each answer, and its colour: A-42."""
    percent = round(100 * used / window, 1)
    told = "" if response is None else f" | response: {response:,} tokens"
    return f"[tokens: {used:,} / {window:,} ({percent:.1f}%){told}]", level(percent)
