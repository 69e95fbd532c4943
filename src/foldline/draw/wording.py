"""Make text that others wrote safe to draw, measure it in columns, and put the picture into words.

The words are the rows of the picture's table and the notes below it, the same in every output.
"""

import re
import unicodedata
from dataclasses import dataclass
from textwrap import wrap

from foldline.core.budget import Source
from foldline.core.names import format_count
from foldline.core.prices import format_dollars
from foldline.core.request import Pressure
from foldline.draw.picture import KINDS, Fill, Fold, InputCost, Picture, Prefix
from foldline.session.ledger import Ledger

# Whole escape sequences go, not only their first byte: the rest would be left as litter.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours, cursor moves
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors: some terminals draw the character before them wider, others do not."""
_BLANK = frozenset(
    [*map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x2800, 0x3164, 0xFFA0))]
    + [chr(code) for code in (*range(0x180B, 0x180E), *range(0xFE00, 0xFE10))]
    + [chr(code) for code in range(0xE0100, 0xE01F0)]
)
"""Letters and marks that show nothing: fillers, and selectors of another look."""
_MOST_MARKS = 2  # combining marks on a letter: more would cover the lines around it
_DOTS = "…"


def clean_line(text: str) -> str:
    """Return one line of visible characters: no controls, no escapes, nothing bidirectional."""
    plain = "".join(map(_filter_letter, _SELECTORS.sub("", _ESCAPES.sub("", text))))
    kept: list[str] = []
    marks = _MOST_MARKS  # a mark without a letter before it would join our own text
    for letter in unicodedata.normalize("NFC", " ".join(plain.split())):
        marks = marks + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        if marks <= _MOST_MARKS:
            kept.append(letter)
    return "".join(kept)


def _filter_letter(letter: str) -> str:
    if letter.isspace():
        return " "
    return "" if unicodedata.category(letter) in _UNSEEN else letter


def escape_hidden_characters(text: str) -> str:
    r"""Write invisible characters out, as `\x1b` or `\u202e`.

    For text that a person approves: a shell would run what `clean_line` leaves out.
    """
    if text.isascii() and text.isprintable():
        return text
    found: list[str] = []
    marks = _MOST_MARKS
    for letter in text:
        category = unicodedata.category(letter)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        hidden = (category in _UNSEEN and letter not in "\n\t") or letter in _BLANK
        if hidden or marks > _MOST_MARKS or (category == "Zs" and letter != " "):
            found.append(letter.encode("unicode_escape").decode())
        else:
            found.append(letter)
    return "".join(found)


def escape_line(text: str) -> str:
    """Return a text that a person approves as one line, with invisible characters written out."""
    return clean_line(escape_hidden_characters(text))


def measure_width(text: str) -> int:
    """Return how many columns a clean text takes."""
    return len(text) if text.isascii() else sum(_count_columns(letter) for letter in text)


def truncate_to_width(text: str, columns: int) -> str:
    """Cut a clean text to so many columns; a cut ends in dots."""
    if measure_width(text) <= columns:
        return text
    room = columns - measure_width(_DOTS)
    if room < 0:
        return ""
    kept: list[str] = []
    for letter in text:
        room -= _count_columns(letter)
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept) + _DOTS


def find_word(text: str, asked: str) -> tuple[int, int]:
    """Return where the first of some words begins and ends in a text; (0, 0) if none is there."""
    words = sorted({*re.findall(r"\w+", asked)}, key=len, reverse=True)
    hit = re.search("|".join(rf"\b{re.escape(word)}" for word in words), text, re.IGNORECASE)
    return (0, 0) if hit is None else hit.span()


def _count_columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


_LEAST = 16  # columns that a note needs
_SOURCES: dict[Source, str] = {
    "user": "as given",
    "provider": "by the provider",
    "learned": "learned from an error",
    "catalogue": "from the catalogue",
    "default": "assumed",
}
_FOLDING: tuple[Pressure, ...] = ("soft", "hard")
_MOST_FOLDS = 5  # the newest, listed one by one


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table; one without `fill` is the sum of those above."""

    fill: Fill | None
    tokens: int
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The text of the first column."""
        return self.fill or "request"


def format_picture_usage(drawn: Picture) -> str:
    """Format used tokens, window and share."""
    return f"{drawn.total:,} / {drawn.window:,} ({drawn.percent:.1f}%)"


def render_usage_block(
    drawn: Picture, *, latest: int, growth: int, turns_left: int | None
) -> list[str]:
    """Render the window, what a turn adds to it, and how many more turns fit."""
    sizes = dict(drawn.tiers)
    at = next((sizes[name] for name in _FOLDING if name in sizes), drawn.window)
    rows = (
        f"Used: {drawn.total:,} / {drawn.window:,} tokens ({drawn.percent:.1f}%)",
        f"Latest turn: {latest:,} tokens",
        f"Avg turn: {growth:,} tokens",
        f"Estimated turns remaining: {'unknown' if turns_left is None else f'~{turns_left:,}'}",
        f"Compaction threshold: {round(100 * at / drawn.window, 1):g}%",
    )
    return ["📊 Context Usage:", *(f"  {row}" for row in rows)]


def format_model_name(drawn: Picture) -> str:
    """Return the model's name, cleaned: a client may have chosen it."""
    return shorten_model_name(drawn.model) or "no model yet"


def shorten_model_name(name: str) -> str:
    """Clean a model's name; of a path, as servers of one file report it, keep the file."""
    shown = clean_line(name)
    return shown.rpartition("/")[2] if shown.startswith("/") else shown


def render_picture_subtitle(drawn: Picture) -> str:
    """Return the line below the title: pressure, policy, sources."""
    return (
        f"pressure {drawn.pressure} · policy {clean_line(drawn.policy)} · "
        f"tokens {drawn.counted} · window {_SOURCES[drawn.source]}"
    )


def build_table_rows(drawn: Picture) -> tuple[TableRow, ...]:
    """Build the table: the request part by part, its sum, and what it leaves of the window."""
    found: list[TableRow] = []
    for kind in KINDS:
        runs = drawn.select_runs(kind)
        if runs:
            found.append(
                TableRow(kind, sum(run.tokens for run in runs), _describe_kind(drawn, kind))
            )
    found.append(TableRow(None, drawn.total, (f"room for the conversation: {drawn.room:,}",)))
    found += [
        TableRow(space, size, _explain_space(drawn, space))
        for space, size in drawn.measure_spaces().items()
        if size or space == "free"
    ]
    return tuple(found)


def collect_notes(drawn: Picture) -> tuple[tuple[str, str], ...]:
    """Collect the notes below the table, as (title, text)."""
    found = [("cache", _describe_cache(drawn.prefix))]
    if drawn.total:
        found.append(("cost", _describe_cost(drawn.cost)))
    if drawn.over:
        found.append(("full", f"{drawn.over:,} tokens too many to be sent as it is"))
    return (*found, *(("note", warning) for warning in drawn.warnings))


def wrap_notes(notes: tuple[str, ...], columns: int) -> list[str]:
    """Wrap notes; short ones share a line."""
    if columns < _LEAST:
        return []
    lines: list[str] = []
    for note in notes:
        joined = f"{lines[-1]}; {note}" if lines else note
        if lines and len(joined) <= columns and not note.startswith("fold"):
            lines[-1] = joined
        else:
            lines += wrap(note, columns, subsequent_indent="  ")
    return lines


def _describe_kind(drawn: Picture, kind: Fill) -> tuple[str, ...]:
    runs = [run for run in drawn.runs if run.kind == kind]
    match kind:
        case "system":
            return ()
        case "handoffs":
            return tuple(_describe_folds(drawn.folds))
        case "tools":
            name = "tool"
        case "results":
            name = "result"
        case _:
            name = "message"
    notes = [format_count(sum(run.items for run in runs), name)]
    notes += [
        f"{short.state} {short.items:,}: {short.shown:,} of {short.whole:,} shown"
        for short in drawn.shorts
        if short.kind == kind
    ]
    for state, meaning in (
        ("late", "came after its call was closed"),
        ("interrupted", "no result"),
    ):
        if count := sum(run.items for run in runs if run.state == state):
            notes.append(f"{state} {count:,}: {meaning}")
    return tuple(notes)


def _describe_folds(folds: tuple[Fold, ...]) -> list[str]:
    newest = folds[-_MOST_FOLDS:]
    older = folds[: len(folds) - len(newest)]
    notes = [
        f"fold {fold.span.lo:,}–{fold.span.hi:,}: "  # noqa: RUF001 - from, to
        f"{format_count(fold.messages, 'message')}, {fold.before:,} → {fold.after:,}"
        f"{f', by {fold.client}' if fold.client else ''}"
        for fold in newest
    ]
    if older:
        sums = (sum(f.messages for f in older), sum(f.before for f in older))
        after = sum(fold.after for fold in older)
        summary = f"{format_count(len(older), 'older fold')}: {format_count(sums[0], 'message')}"
        notes.insert(0, f"{summary}, {sums[1]:,} → {after:,}")
    return notes


def _explain_space(drawn: Picture, space: Fill) -> tuple[str, ...]:
    match space:
        case "margin":
            return ("kept for errors of the count",)
        case "closed":
            return (f"the model takes at most {drawn.most:,}",)
        case "reserve":
            return ("kept for the answer",)
        case _:
            return ()


def _describe_cache(prefix: Prefix) -> str:
    if not prefix.kept + prefix.new:
        return "nothing to send yet"
    if not prefix.sent:
        return f"nothing of this was sent before: all {prefix.new:,} tokens are new"
    if prefix.cache == "cold":
        return f"expired: all {prefix.kept + prefix.new:,} tokens are written anew"
    held = "read from the cache" if prefix.cache == "warm" else "read from the cache if it is warm"
    return f"{prefix.kept:,} tokens as last sent, {held}; {prefix.new:,} new"


def _describe_cost(cost: InputCost | None) -> str:
    if cost is None:
        return "not known: this model has no price in the catalogue"
    least = "at least " if cost.step is not None else ""
    said = f"next call {least}{format_dollars(cost.dollars)} for its input"
    if cost.dollars < cost.uncached:
        said += f", {format_dollars(cost.uncached)} if nothing were cached"
    if cost.assumed:
        said += "; price of cached reads assumed"
    if cost.step is not None:
        said += f"; above {cost.step:,} every token costs more"
    return said


def describe_charges(ledger: Ledger) -> tuple[str, str]:
    """Say what answers and narratives took together, and what they cost."""
    sums = ledger.sum_charges()
    cached = f", {sums.cache_read:,} of them read from the cache" if sums.cache_read else ""
    calls = format_count(sums.calls, "call")
    took = f"{calls}: {sums.input:,} tokens in{cached}, {sums.output:,} out"
    if sums.known_dollars is None:
        return took, "in dollars not known: no model of this session has a price in the catalogue"
    cost = f"{format_dollars(sums.dollars)} so far"
    gaps = (sums.unpriced, "whose price is not known"), (sums.estimated, "that was not counted")
    for count, why in gaps:
        cost += f", without {format_count(count, 'call')} {why}" if count else ""
    return took, f"{cost}{'; prices of cached reads assumed' if ledger.assumed else ''}"
