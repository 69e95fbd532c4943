"""Ask a person before something is changed or trusted, and explain errors with their remedies.

    approvals.ask = partial(ask_approval, face)   # called where no remembered answer applies

`agent.approval` and `agent.instructions` remember the answers.
"""

from collections.abc import Sequence
from textwrap import wrap

from foldline.agent.approval import Answer, No, Span, Yes
from foldline.agent.instructions import Answer as Trusting
from foldline.agent.instructions import InstructionFile
from foldline.agent.tool import Intent
from foldline.apps.chat.chat_parts import ChatFace
from foldline.apps.chat.safe import clean_text
from foldline.apps.cli.exit_codes import explain_error
from foldline.apps.cli.output import Style, apply_style
from foldline.core.parts import Call
from foldline.draw.wording import (
    clean_line,
    escape_hidden_characters,
    escape_line,
    measure_width,
    truncate_to_width,
)
from foldline.errors import (
    BadInput,
    Busy,
    Conflict,
    FoldlineError,
    ModelFailed,
    Overflow,
    Spent,
    StoreFailed,
    Vetoed,
)

_MOST = 40  # rows of a diff or a script shown at once
_SPANS: dict[str, Span] = {"s": "session", "p": "project"}
SPAN_WORDS: dict[Span, str] = {
    "session": "in this session",
    "project": "in this folder, in every session",
}
"""Where a permission holds, in words."""


async def ask_approval(face: ChatFace, call: Call, intent: Intent) -> Answer:
    """Ask a person about one call; no answer is a no."""
    repeats = _is_said_by_question(intent, face.columns)
    detail = [] if repeats else render_detail(intent.detail, face.columns)
    first, below = detail[:_MOST], detail[_MOST:]
    if below:
        first.append(apply_style(f"  │ … and {len(below):,} more lines: v shows them", "yellow"))
    face.above("\n".join(first))
    rules = intent.rules
    what = _wrap_line(
        f"◇ {escape_line(intent.what) or clean_line(call.name)}",
        face.columns,
    )
    lasting = " · s for this session · p for this project" if rules else ""
    more = " · v the rest" if below else ""
    ways = wrap_at_dots(f"  y once{lasting}{more} · n [why]", face.columns)
    only = [f"  s and p allow {escape_line(rules[0])}"] if len(rules) == 1 else []
    shown = [
        *(apply_style(row, "yellow") for row in what),
        *(apply_style(row, "dim") for row in ways),
        *(apply_style(row, "dim") for line in only for row in _wrap_line(line, face.columns)),
    ]
    face.above("\n".join(shown))
    while True:
        said = await face.ask("Allow it? [y/N] ")
        if said is None:
            return No()
        word, _, rest = said.strip().partition(" ")
        match word.lower():
            case "y" | "yes" if not rest.strip():  # "y no, wait" is no yes
                return Yes()
            case "" | "n" | "no":
                return No(clean_text(rest.strip()))
            case "s" | "p" as span if rules:
                rule = await _choose_rule(face, rules, rest)
                if rule is not None:
                    lasts = _SPANS[span]
                    scope = f"  from now on {SPAN_WORDS[lasts]}: {escape_line(rule)}"
                    face.above(apply_style(scope, "dim"))
                    return Yes(lasts, rule)
                face.above(apply_style("  no such rule; nothing is allowed yet", "dim"))
            case "v" if below:
                face.above("\n".join(below))
            case _:
                face.above(apply_style("  answer y, n and why, s or p", "dim"))


def _is_said_by_question(intent: Intent, columns: int) -> bool:
    """Whether the question shows all of a short command: again, it looked like output above it."""
    plain = escape_line(intent.detail) == intent.detail
    fits = measure_width(intent.what) + 2 <= columns
    return plain and fits and intent.what.endswith(f" {intent.detail}")


async def _choose_rule(face: ChatFace, rules: tuple[str, ...], given: str) -> str | None:
    """Choose the rule to remember: the only one, or the one whose number is given."""
    if len(rules) == 1:
        given = given.strip() or "1"
    if not given:
        face.above("\n".join(f"  {at} {escape_line(rule)}" for at, rule in enumerate(rules, 1)))
        answer = await face.ask("For which? [1] ")
        if answer is None:
            return None
        given = answer.strip() or "1"
    at = int(given) - 1 if given.strip().isdecimal() else -1
    return rules[at] if 0 <= at < len(rules) else None


async def ask_trust(face: ChatFace, files: Sequence[InstructionFile]) -> Trusting:
    """Ask whether to follow instructions that this folder has."""
    lines = [apply_style("This folder has instructions for the model:", "yellow")]
    for one in files:
        lines.append(
            truncate_to_width(
                f"  {clean_line(str(one.path))}  {one.size:,} bytes, {one.state}", face.columns
            )
        )
        lines += (
            apply_style(truncate_to_width(f"  │ {clean_line(line)}", face.columns), "dim")
            for line in one.lines
        )
    keys = "  y these words · a always in this folder, also when they change · n not now"
    face.above("\n".join([*lines, apply_style(truncate_to_width(keys, face.columns), "dim")]))
    while True:
        match ((await face.ask("Follow them? [y/N] ")) or "").strip().lower():
            case "y" | "yes":
                return "yes"
            case "a" | "always":
                return "always"
            case "" | "n" | "no":
                return "no"
            case _:
                face.above(apply_style("  answer y, a or n", "dim"))


def render_detail(detail: str, columns: int) -> list[str]:
    """Render a change with nothing hidden: an unseen part would be agreed to all the same."""
    shown = escape_hidden_characters(detail).expandtabs(4).rstrip("\n")
    is_diff = detail.startswith("--- ")
    found: list[str] = []
    for at, line in enumerate(shown.split("\n") if shown else []):
        style: Style = "dim"
        if is_diff and at > 1:  # the first two lines name the file
            style = "green" if line[:1] == "+" else "red" if line[:1] == "-" else "dim"
        found += (apply_style(f"  │ {row}", style) for row in _wrap_line(line, max(columns - 4, 8)))
    return found


def wrap_at_dots(text: str, columns: int) -> list[str]:
    """Wrap a line at the dots between its pieces; a piece that is too long at its blanks."""
    rows: list[str] = []
    for piece in text.split(" · "):
        if rows and measure_width(rows[-1]) + measure_width(piece) + 3 <= columns:
            rows[-1] += f" · {piece}"
        else:
            indent = "  " if rows else ""
            rows += wrap(
                piece.strip(),
                max(columns, 8),
                initial_indent=indent or piece[: len(piece) - len(piece.lstrip())],
                subsequent_indent="  ",
            )
    return rows


def _wrap_line(line: str, columns: int) -> list[str]:
    rows, room = [""], columns
    for letter in line:
        room -= measure_width(letter)
        if room < 0:
            rows.append("")
            room = columns - measure_width(letter)
        rows[-1] += letter
    return rows


_WAYS = {
    "rate": "the provider asks to slow down: wait, then /retry",
    "overloaded": "the server failed, or has too much to do: wait a moment, then /retry",
    "unreachable": "then /retry; /model NAME takes another model",
    "tokens": "/compact makes room, then /retry",
    "auth": "correct a saved key, then /retry; one in the environment: leave, set it, --continue",
}
_AGAIN = "/retry asks again, /model NAME takes another model"


def explain_fault(fault: Exception) -> str:
    """Say in one or two lines what went wrong, and what to do about it."""
    message, remedy = explain_error(fault)[1], _choose_remedy(fault)
    return f"{message}\n{remedy}" if remedy else message


def _choose_remedy(fault: Exception) -> str:
    match fault:
        case ModelFailed():
            return _WAYS.get(fault.fault.kind, _AGAIN)
        case Overflow():
            return "/compact or /model NAME with a larger window, then /retry"
        case Spent():
            return "nothing was sent; what you said is kept, /retry asks again"
        case Vetoed():
            return "/compaction-status tells more"
        case Busy() | Conflict():
            return "another terminal has this session: leave one of the two, and --continue"
        case StoreFailed():
            return "what was written before stays; `foldline doctor` looks at the store"
        case BadInput() if "API_KEY" in str(fault) or "extra" in str(fault):
            return "leave, set it, and `foldline chat --continue`; or /model NAME takes another"
        case FoldlineError() | OSError():
            return ""
        case _:
            return "the conversation is kept, and goes on"
