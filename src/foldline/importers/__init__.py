"""Other agents' session files as events.

    text  →  lines (records)  →  files (which agent wrote it)  →  one source  →  taking (the log)

What a file holds and an event cannot is counted by kind in `Imported.notes`. A broken line is left
out and noted; only a file of which nothing can be read raises, and then a `WireError`.
"""

from foldline.importers.base import Imported, Source
from foldline.importers.files import detect, read

__all__ = ["Imported", "Source", "detect", "read"]
