"""What a person is asked before something is changed, and what they may answer.

    agent.approve = ...   # `agent.approval` decides by what is remembered, and asks by `asked`

Knows the question and its answers. Refuses to remember them: that is `agent.approval`'s.
"""

from typing import Literal, NamedTuple, TypeAlias

from foldline.agent.tool import Intent
from foldline.cli.output import paint
from foldline.cli.repl.safe import safe
from foldline.cli.repl.seat import Face
from foldline.core.parts import Call
from foldline.draw.text import clean, fit

Scope: TypeAlias = Literal["once", "session", "project"]
_MOST = 40  # lines of a diff or a script that are shown
_SCOPES: dict[str, Scope] = {"s": "session", "p": "project"}
_DENIED = "the user said no"


class Answer(NamedTuple):
    """What a person said to an intent."""

    agreed: bool
    why: str = ""
    """Why not, for the model to read."""
    scope: Scope = "once"
    rule: str = ""
    """What it is remembered for: one of the intent's rules."""


async def asked(face: Face, call: Call, intent: Intent) -> Answer:
    """Ask a person about one call; whoever turns away has said no."""
    face.above("\n".join([*_detail(intent, face.columns)]))
    rules = [clean(rule) for rule in intent.rules]
    told = paint(fit(f"◇ {clean(intent.what) or clean(call.name)}", face.columns), "yellow")
    lasting = " · s for this session · p for this project" if rules else ""
    face.above(f"{told}\n{paint(fit(f'  y once{lasting} · n [why]', face.columns), 'dim')}")
    while True:
        said = await face.ask("Allow it? [y/N] ")
        if said is None:
            return Answer(agreed=False, why=_DENIED)
        word, _, rest = said.strip().partition(" ")
        match word.lower():
            case "y" | "yes":
                return Answer(agreed=True)
            case "" | "n" | "no":
                why = safe(rest.strip())
                return Answer(agreed=False, why=f"{_DENIED}: {why}" if why else _DENIED)
            case "s" | "p" as scope if rules:
                rule = await _rule(face, intent.rules, rest)
                if rule is not None:
                    return Answer(agreed=True, scope=_SCOPES[scope], rule=rule)
            case _:
                face.above(paint("  answer y, n and why, s or p", "dim"))


async def _rule(face: Face, rules: tuple[str, ...], given: str) -> str | None:
    """Which rule is remembered: the only one, or the one whose number is given."""
    if len(rules) == 1:
        return rules[0]
    if not given:
        face.above("\n".join(f"  {at} {clean(rule)}" for at, rule in enumerate(rules, 1)))
        given = await face.ask("For which? [1] ") or ""
        given = given.strip() or "1"
    at = int(given) - 1 if given.strip().isdecimal() else -1
    return rules[at] if 0 <= at < len(rules) else None


def _detail(intent: Intent, columns: int) -> list[str]:
    lines = safe(intent.detail).expandtabs(4).rstrip("\n").split("\n") if intent.detail else []
    found: list[str] = []
    for line in lines[:_MOST]:
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        found.append(paint(f"  │ {fit(line, max(columns - 4, 8))}", style))
    if len(lines) > _MOST:
        found.append(paint(f"  │ … and {len(lines) - _MOST:,} more lines", "dim"))
    return found
