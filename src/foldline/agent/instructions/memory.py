"""The memory file: what the user wants known in every session (A-06).

A plain list in `preferences.md` of the config folder, in the fixed part of every request. About
`TOKENS` of it are told, the newest lines of them: it grows at its end. Knows lines. Refuses to know
what is worth remembering.
"""

import os
from pathlib import Path

from foldline.agent.instructions.reading import clean
from foldline.errors import BadInput

NAME = "preferences.md"
TOKENS = 500
_LONGEST = 1_000  # characters: a line, no page
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


def remember(path: Path, line: str) -> str:
    """Add one line to the file at its end; gives the line as it stands there."""
    words = " ".join(clean(line).encode(errors="replace").decode().split()).removeprefix("- ")
    if not words:
        raise BadInput("there is nothing to remember; write it behind the command: /remember …")
    if len(words) > _LONGEST:
        raise BadInput(
            f"{len(words):,} characters are too many for one line to remember, {_LONGEST:,} at "
            f"most; write it into {path} yourself, or into an AGENTS.md"
        )
    said = f"- {words}"
    try:
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, _PRIVATE_FILE), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            ended = file.read(1) in {b"", b"\n"}
            file.write((b"" if ended else b"\n") + f"{said}\n".encode())
    except OSError as fault:
        raise BadInput(f"{path} cannot be written: {fault.strerror}") from fault
    return said
