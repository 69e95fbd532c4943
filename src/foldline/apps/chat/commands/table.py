"""What a command is: its name, what it takes, what it is for, and the function that does it.

Knows the shape, and how a line becomes a command. Refuses to know what commands do.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from foldline.draw.text import clean
from foldline.errors import FoldlineError

if TYPE_CHECKING:
    from foldline.apps.chat.conversation import Talk

Work: TypeAlias = "Callable[[Talk, str], Awaitable[None]]"
Choices: TypeAlias = "Callable[[Talk], Iterable[tuple[str, str]]]"
"""What may be written behind a command: (the word, what it is) for each."""


class Misused(FoldlineError):  # noqa: N818 - named for what happened
    """A command that there is not, or that was written wrong; nothing was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCommand:
    """One thing that a person may ask of the terminal itself."""

    name: str
    arguments: str = ""
    help: str
    work: Work
    choices: "Choices | None" = None
    also: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """As it is written."""
        return f"/{self.name} {self.arguments}".rstrip()


def find(table: Sequence[ChatCommand], text: str) -> tuple[ChatCommand, str]:
    """The command of a line that begins with a slash, and what stands behind its name."""
    name, _, rest = text[1:].partition(" ")
    wanted = name.strip().lower()
    for one in table:
        if wanted in (one.name, *one.also):
            return one, rest.strip()
    every = [word for one in table for word in (one.name, *one.also)]
    begun = [one for one in every if wanted and one.startswith(wanted)]
    near = begun[:3] or get_close_matches(wanted, every, n=2)
    hint = f"did you mean {' or '.join(f'/{one}' for one in near)}?" if near else "/help lists all"
    raise Misused(f"there is no command /{clean(name)}; {hint} (//… says it to the model)")


def endings(table: Sequence[ChatCommand], talk: "Talk", text: str) -> Iterable[tuple[str, str]]:
    """How a line that begins with a slash may end."""
    name, space, rest = text[1:].partition(" ")
    if not space:
        for one in table:
            if one.name.startswith(name.lower()):
                yield f"/{one.name}", one.help
        return
    for one in table:
        if name in (one.name, *one.also) and one.choices is not None:
            last = rest.rpartition(" ")[2]
            for word, told in one.choices(talk):
                if word.lower().startswith(last.lower()) and word != last:
                    yield word, told


def number(text: str, what: str) -> int:
    """A place in the log or a size: 12, or log:12."""
    plain = text.strip().removeprefix("log:").replace(",", "").replace("_", "")
    if not plain.isdecimal() or len(plain) > 15:  # noqa: PLR2004 - no log is so long
        raise Misused(f"{clean(text)!r} is no {what}; write a number")
    return int(plain)
