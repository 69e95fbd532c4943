"""Facts kept without a model: files, commands, tests, errors, tasks, links, names.

collect         Collect facts from calls and results; imported only when something is folded
entries         What one call does, and what its result tells
fact_pages      Merge facts, and choose those that a handoff shows
shell_commands  Shell text: its commands and the files they touch
"""

from foldline.core.ledger.fact_pages import (
    CEILING,
    HEADINGS,
    Facts,
    Pages,
    build_pages,
    drop_settled_facts,
    merge_facts,
)

__all__ = [
    "CEILING",
    "HEADINGS",
    "Facts",
    "Pages",
    "build_pages",
    "drop_settled_facts",
    "merge_facts",
]
