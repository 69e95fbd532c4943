"""The page docs/reference/chat-output.md: what `chat --output json | stream-json` prints.

Every field is asked of the classes that are printed; see src/foldline/apps/cli/chat_records.py.
"""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from from_source import cell, code, table

from foldline.apps.cli import chat_records as records
from foldline.apps.cli.exit_codes import MEANINGS

WORDS = """`foldline chat -p TEXT --output json` prints one JSON document, a `result`, when the turn
is over. `--output stream-json` prints a line of JSON for each thing that happens, and the same
`result` as its last line. `foldline --json chat …` is `--output json`. Stdout has nothing else,
also after an error or a signal; the error's own line is on stderr as always.

`type` says what a record is, `version` is the version of this format. In version {version} fields
may be added, so ignore those that you do not know; none is renamed, removed or given another
meaning."""
PARTS = (records.RunUsage, records.WindowUse, records.SentAlong, records.RunError)


def page() -> str:
    """The whole page."""
    parts = [
        "# What `chat --output` prints",
        "<!-- made by scripts/make_reference.py from src/foldline/apps/cli/chat_records.py -->",
        WORDS.format(version=records.VERSION),
        "## Records",
    ]
    for record in get_args(records.Record):
        parts += _told(record, f"`{record.__struct_config__.tag}`", first="type")
    parts.append("## Parts of a `result`")
    for one in PARTS:
        parts += _told(one, f"In `{_held_in(one)}`", first="")
    parts.append("## Outcomes")
    parts.append(
        table(("outcome", "meaning"), [(code(a), cell(b)) for a, b in records.OUTCOMES.items()])
    )
    parts.append("## Exit codes")
    parts.append(table(("code", "meaning"), [(str(a), cell(b)) for a, b in MEANINGS.items()]))
    parts.append(
        "SIGTERM and SIGHUP end a turn as Ctrl-C does, with 143 and 129. If nobody reads stdout "
        "any more, as behind `head`, the turn ends and the code is 0."
    )
    return "\n\n".join(parts) + "\n"


def _told(record: Any, title: str, *, first: str) -> Iterator[str]:
    yield f"### {title}"
    yield record.__doc__
    rows = [(code(first), "text", cell(f"`{record.__struct_config__.tag}`"))] if first else []
    for name, hint in get_type_hints(record, include_extras=True).items():
        rows.append((code(name), _kind(get_args(hint)[0]), cell(hint.__metadata__[0].description)))
    yield table(("field", "type", "meaning"), rows)


def _kind(hint: Any) -> str:
    names = {str: "text", int: "number", float: "number", bool: "true or false", Any: "any"}
    if hint in names:
        return names[hint]
    inner = [one for one in get_args(hint) if one is not type(None)]
    if hint == records.Outcome:
        return "text"
    if str(hint).startswith("list"):
        return f"list of {'texts' if inner == [str] else 'objects'}"
    if len(inner) < len(get_args(hint)):
        return f"{_kind(inner[0])} or null"
    return "object"


def _held_in(part: Any) -> str:
    hints = get_type_hints(records.RunResult)
    return next(name for name, hint in hints.items() if hint == part or part in get_args(hint))
