"""The tools of a request: each once, under a name that its dialect takes.

Knows signs, lengths and repeats of names. Refuses to know how a dialect writes a tool or a call.

A name that a dialect takes is written as it is. Any other is written in a safe form, which ends
with a digest of the name: always the same for the same name, in a tool's definition and in every
call of it. A model then calls the tool by its safe name; whoever runs tools finds it by the name
that the request has, not by the one that was given.

Of neutral tools with one name the last is written, where the first stood: so do the SDKs' own tool
runners, which keep tools by their names. What came in the dialect itself stays, also twice.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foldline.core.parts import Tool

UNNAMED = "unnamed"
"""What a call is shown as that a model made of no tool: no provider takes an empty name."""
_SIGNS = re.compile(r"[a-zA-Z0-9_-]+")
_OTHERS = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST = 8


@dataclass(frozen=True, slots=True)
class Names:
    """How the tools of one request are named."""

    written: Mapping[str, str]
    """Of each tool, the name that its definition has."""
    called: int
    """How long the name of a call may be that is of none of these tools."""

    def of(self, name: str) -> str:
        """The name that a tool is defined and called by."""
        given = name or UNNAMED
        found = self.written.get(given)
        return found or safe(given, self.called, taken=self.written.values())


def named(tools: Iterable[Tool], *, dialect: str, longest: int, called: int) -> Names:
    """The names of a request's tools: no two of them are written alike."""
    found: dict[str, str] = {}
    odd: list[str] = []
    for tool in tools:
        name = tool.name or UNNAMED
        if _came_in(tool, dialect) or _stands(name, longest):
            found[name] = name
        else:
            odd.append(name)
    for name in odd:
        found.setdefault(name, safe(name, longest, taken=found.values()))
    return Names(found, called)


def safe(name: str, longest: int, *, taken: Iterable[str] = ()) -> str:
    """A name in signs that every dialect takes; itself, if it has no others and is not too long."""
    if _stands(name, longest):
        return name
    stem = _OTHERS.sub("_", name)[: longest - _DIGEST - 1]
    return marked(stem, name, digits=_DIGEST, taken=taken)


def marked(stem: str, name: str, *, digits: int, taken: Iterable[str] = ()) -> str:
    """A stem with a digest of the whole name behind it: always the same, and none of `taken`."""
    used, digest = {*taken}, name
    while True:
        digest = hashlib.sha256(digest.encode()).hexdigest()
        made = f"{stem}_{digest[:digits]}"
        if made not in used:
            return made


def once(tools: Iterable[Tool], *, dialect: str) -> list[Tool]:
    """The tools that are written, in their order."""
    given = [*tools]
    own = {tool.name for tool in given if _came_in(tool, dialect)}
    found: dict[str | int, Tool] = {}
    for place, tool in enumerate(given):
        if _came_in(tool, dialect):
            found[place] = tool
        elif tool.name not in own:
            found[tool.name or UNNAMED] = tool
    return [*found.values()]


def repeated(tools: Iterable[Tool]) -> set[str]:
    """The names that more than one tool has."""
    seen: set[str] = set()
    twice: set[str] = set()
    for tool in tools:
        (twice if tool.name in seen else seen).add(tool.name)
    return twice


def _came_in(tool: Tool, dialect: str) -> bool:
    return tool.native is not None and tool.native.dialect == dialect


def _stands(name: str, longest: int) -> bool:
    return len(name) <= longest and _SIGNS.fullmatch(name) is not None
