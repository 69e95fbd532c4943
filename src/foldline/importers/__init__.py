"""Imports other agents' session files as events.

    text  →  detect: records, and which agent wrote them  →  one source  →  draft_log: the log

`recorded_folds` makes folds of the compactions that a file records, when it is put into a store.
What events cannot carry is counted by kind in `Imported.notes`. A broken line is skipped and noted;
only a file of which nothing can be read raises `WireError`.
"""

from foldline.importers.detect import detect, read
from foldline.importers.source import Imported, Source

__all__ = ["Imported", "Source", "detect", "read"]
