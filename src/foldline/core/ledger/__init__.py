"""Facts kept without a model: files, commands, tests, errors, tasks, links, names.

collect(items, events)  →  facts      read from calls and results, in order
merge(older, newer)     →  facts      what two folds know, as one
pages(facts, cap)       →  lines      what a handoff shows of them
"""

from foldline.core.ledger.merge import Facts, merge, settled
from foldline.core.ledger.pages import CEILING, Pages, pages

__all__ = ["CEILING", "Facts", "Pages", "merge", "pages", "settled"]
