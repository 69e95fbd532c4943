"""What a person is asked before something is changed, and what they may answer.

    approvals.ask = partial(asked, face)   # `agent.approval` decides by what is remembered, or asks

Knows the questions and their answers. Refuses to remember them: that is `agent.approval`'s and
`agent.instructions`'.
"""

from collections.abc import Sequence

from foldline.agent.approval import Answer, No, Span, Yes
from foldline.agent.instructions import Answer as Trusting
from foldline.agent.instructions import InstructionFile
from foldline.agent.tool import Intent
from foldline.apps.chat.safe import safe, seen
from foldline.apps.chat.startup import ChatFace
from foldline.apps.cli.output import paint
from foldline.core.parts import Call
from foldline.draw.text import clean, fit, width

_MOST = 40  # rows of a diff or a script that are shown at once
_SPANS: dict[str, Span] = {"s": "session", "p": "project"}


async def asked(face: ChatFace, call: Call, intent: Intent) -> Answer:
    """Ask a person about one call; whoever turns away has said no."""
    detail = _detail(intent, face.columns)
    first, below = detail[:_MOST], detail[_MOST:]
    if below:
        first.append(paint(f"  │ … and {len(below):,} more lines: v shows them", "yellow"))
    face.above("\n".join(first))
    rules = intent.rules
    what = _rows(f"◇ {clean(seen(intent.what)) or clean(call.name)}", face.columns)
    lasting = " · s for this session · p for this project" if rules else ""
    more = " · v the rest" if below else ""
    ways = paint(fit(f"  y once{lasting}{more} · n [why]", face.columns), "dim")
    face.above("\n".join([*(paint(row, "yellow") for row in what), ways]))
    while True:
        said = await face.ask("Allow it? [y/N] ")
        if said is None:
            return No()
        word, _, rest = said.strip().partition(" ")
        match word.lower():
            case "y" | "yes":
                return Yes()
            case "" | "n" | "no":
                return No(safe(rest.strip()))
            case "s" | "p" as span if rules:
                rule = await _rule(face, intent.rules, rest)
                if rule is not None:
                    return Yes(_SPANS[span], rule)
            case "v" if below:
                face.above("\n".join(below))
            case _:
                face.above(paint("  answer y, n and why, s or p", "dim"))


async def _rule(face: ChatFace, rules: tuple[str, ...], given: str) -> str | None:
    """Which rule is remembered: the only one, or the one whose number is given."""
    if len(rules) == 1:
        return rules[0]
    if not given:
        face.above("\n".join(f"  {at} {clean(seen(rule))}" for at, rule in enumerate(rules, 1)))
        given = await face.ask("For which? [1] ") or ""
        given = given.strip() or "1"
    at = int(given) - 1 if given.strip().isdecimal() else -1
    return rules[at] if 0 <= at < len(rules) else None


async def trusting(face: ChatFace, files: Sequence[InstructionFile]) -> Trusting:
    """Ask about instructions that somebody wrote into this folder: R-61."""
    lines = [paint("This folder has instructions for the model:", "yellow")]
    for one in files:
        lines.append(
            fit(f"  {clean(str(one.path))}  {one.size:,} bytes, {one.state}", face.columns)
        )
        lines += (paint(fit(f"  │ {clean(line)}", face.columns), "dim") for line in one.lines)
    told = "  y these words · a always in this folder, also when they change · n not now"
    face.above("\n".join([*lines, paint(fit(told, face.columns), "dim")]))
    while True:
        match ((await face.ask("Follow them? [y/N] ")) or "").strip().lower():
            case "y" | "yes":
                return "yes"
            case "a" | "always":
                return "always"
            case "" | "n" | "no":
                return "no"
            case _:
                face.above(paint("  answer y, a or n", "dim"))


def _detail(intent: Intent, columns: int) -> list[str]:
    """All of it, and nothing hidden: what is not seen here would be agreed to all the same."""
    lines = seen(intent.detail).expandtabs(4).rstrip("\n").split("\n") if intent.detail else []
    found: list[str] = []
    for line in lines:
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        found += (paint(f"  │ {row}", style) for row in _rows(line, max(columns - 4, 8)))
    return found


def _rows(line: str, columns: int) -> list[str]:
    """A line on as many rows as it takes."""
    rows, room = [""], columns
    for letter in line:
        room -= width(letter)
        if room < 0:
            rows.append("")
            room = columns - width(letter)
        rows[-1] += letter
    return rows
