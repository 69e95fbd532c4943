"""Places: where a path that a model wrote leads, and whether that is inside the working folder.

    Root("/home/ann/project").place("src/../a.py")   # Place(name="a.py", inside=True, …)

Knows paths, links and the working folder. Refuses to know what is done there. A place is named by
where it really is: below the root by its relative path, elsewhere by its absolute one, so that a
name alone tells which it is.
"""

import os
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from foldline.agent.tool import Intent
from foldline.agent.tools.rules import for_path
from foldline.errors import BadInput


class PathPlace(NamedTuple):
    """Where a path leads."""

    real: Path
    """With every link followed."""
    name: str
    inside: bool
    through: str = ""
    """What was written, where a link on the way leads elsewhere."""

    @property
    def told(self) -> str:
        """Its name, on one line, and the link that leads there."""
        name = one_line(self.name)
        return f"{name} (through the link {one_line(self.through)})" if self.through else name


class Root:
    """The working folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        if not self.path.is_dir():
            raise BadInput(f"{path} is no folder to work in; give one that is there")
        self._agreed: dict[str, Path] = {}

    def place(self, text: str) -> PathPlace:
        """Where a path leads; what is relative is relative to the root."""
        if not text.strip() or "\0" in text:
            raise BadInput(f"{text!r} is no path; write one like src/main.py")
        try:
            given = self.path / Path(text).expanduser()
            real = given.resolve()
        except (RuntimeError, OSError) as fault:  # a loop of links, no such home, a name too long
            raise BadInput(f"{one_line(text)} leads nowhere: {fault}") from None
        inside = real.is_relative_to(self.path)
        name = real.relative_to(self.path).as_posix() if inside else real.as_posix()
        linked = Path(os.path.normpath(given)) != real
        return PathPlace(real, name, inside, text if linked else "")

    def outside(self, verb: str, text: str) -> Intent | None:
        """What to ask before looking at a place: nothing, unless it is outside of the root."""
        place = self.place(text)
        self._agreed[text] = place.real
        if place.inside:
            return None
        return Intent(
            f"{verb} {place.told}, outside of {self.path}", "", for_path("read", place.name)
        )

    def agreed(self, text: str) -> PathPlace:
        """The place that was asked about; not another that a link leads to by now."""
        place = self.place(text)
        if self._agreed.pop(text, place.real) != place.real:
            raise BadInput(f"{one_line(text)} leads to {place.told} by now; call again")
        return place


def missing(place: PathPlace) -> BadInput:
    """That nothing is there, and what has nearly that name."""
    folder = place.real.parent
    while not folder.is_dir():
        folder = folder.parent
    if folder != place.real.parent:
        at = os.path.relpath(folder, place.real.parent)
        return BadInput(f"there is no {place.told}, nor its folder; what is there is {at}")
    with os.scandir(folder) as found:
        near = get_close_matches(place.real.name, [one.name for one in found])
    like = f"; like it: {', '.join(near)}" if near else "; list shows what is there"
    return BadInput(f"there is no {place.told}{like}")


def one_line(text: str) -> str:
    """A name as it is, unless it has line ends or other controls."""
    return text if text.isprintable() else repr(text)
