"""Structure in what tools print: recognise its kind, and shorten it as befits that kind.

`sample` takes the lines by which a kind is recognised and finds error lines, `outline` writes what
is kept. The kinds: `program_output` (logs, stack traces, test runs), `json_records`,
`git_output` (status, logs, patches) and `listings` (paths, tables, matches of a search).
"""

from collections.abc import Callable

from foldline.core.edits.structure import git_output, json_records, listings, program_output
from foldline.core.edits.structure.outline import Outline, Shortened, write_outline
from foldline.core.edits.structure.sample import Printed, Sample, select_fault_lines, take_sample

__all__ = ["Shortened", "recognise", "select_fault_lines", "shorten_structure"]

_LEAST = 240  # tokens below which both ends say more
_FEWEST, _MOST = 12, 100_000  # lines: of more, looking at each would take too long

_KINDS: tuple[tuple[Callable[[Sample], bool], Callable[[Printed, int], Outline | None]], ...] = (
    (json_records.is_json_lines, json_records.outline_json_lines),
    (program_output.is_test_run, program_output.outline_test_run),
    (git_output.is_patch, git_output.outline_patch),
    (git_output.is_status, git_output.outline_status),
    (git_output.is_log_of_commits, git_output.outline_log_of_commits),
    (program_output.is_stack_trace, program_output.outline_stack_trace),
    (program_output.is_log, program_output.outline_log),
    (listings.is_search, listings.outline_search),
    (listings.is_path_list, listings.outline_path_list),
    (listings.is_table, listings.outline_table),
)


def shorten_structure(text: str, tokens: int, *, look: int) -> Shortened | None:
    """Shorten a text of a known kind to `tokens`; None if its kind is not certain.

    `look` is the number of characters that are returned of what was left out.
    """
    outline = recognise(text, tokens) if tokens >= _LEAST else None
    if outline is None or len(outline.pieces) < _FEWEST:
        return None
    return write_outline(outline, tokens, look=look)


def recognise(text: str, tokens: int) -> Outline | None:
    """Recognise the kind of a text, and outline it; None if it is of no known kind."""
    if (records := json_records.outline_json(text, tokens)) is not None:
        return records
    printed = Printed(text)
    if not _FEWEST <= len(printed.lines) <= _MOST:
        return None
    sample = take_sample(printed.lines)
    for is_kind, make_outline in _KINDS:
        if is_kind(sample):
            return make_outline(printed, tokens)
    return None
