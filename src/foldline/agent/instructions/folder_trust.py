"""Which instruction files the user trusts, by path and hash; and the user's memory file.

    trust = Trust(store)                     # answers are kept in the store's side table
    await trust.load()
    trust.is_trusted(path, sha)              # does not ask, only looks
    await trust.allow_file(path, sha)        # this text and no other
    await trust.allow_folder(folder)         # everything in it, also when it changes: by path only

Without a store, answers hold for the process.

The memory file is a plain list, `preferences.md` in the config folder, and part of every request:
its newest lines, about `TOKENS` of them, as it grows at its end.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from foldline.agent.instructions.instruction_files import strip_hidden_characters
from foldline.errors import BadInput
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

_SPACE, _KEY = "trusted", "instructions"
_HASHES = 8  # kept of one path, for users who switch between branches


class Trusted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user trusts at a path: certain contents, or anything there."""

    shas: tuple[str, ...] = ()
    """Hashes of trusted contents, the newest last."""
    always: bool = False
    """Whether anything at the path and below it is trusted."""


_Answers: TypeAlias = dict[str, Trusted]
_DECODER = msgspec.json.Decoder(dict[str, Trusted])


class Trust:
    """The user's answers about instruction files."""

    def __init__(self, store: Store | None = None, *, tenant: str = "local") -> None:
        self._store, self._name = store, Name(tenant, "")
        self._answers: _Answers = {}

    async def load(self) -> None:
        """Read the answers, also those of another process."""
        if self._store is not None:
            entry = await self._store.get(self._name, _SPACE, _KEY)
            self._answers = _DECODER.decode(entry.value) if entry else {}

    def is_trusted(self, path: Path, sha: str) -> bool:
        """Whether the user trusts this content, or anything at this path."""
        answers = (self._answers.get(str(place), Trusted()) for place in (path, *path.parents))
        return self.is_exactly_trusted(path, sha) or any(answer.always for answer in answers)

    def is_exactly_trusted(self, path: Path, sha: str) -> bool:
        """Whether the user trusts this very content, whatever holds for the folder.

        For settings, which run programs: "always in this folder" was said of instructions.
        """
        return sha in self._answers.get(str(path), Trusted()).shas

    def is_known_path(self, path: Path) -> bool:
        """Whether the user trusts some content at this path."""
        return bool(self._answers.get(str(path), Trusted()).shas)

    async def allow_file(self, path: Path, sha: str) -> None:
        """Trust this content at this path."""

        def add_hash(now: Trusted) -> Trusted:
            shas = (*(old for old in now.shas if old != sha), sha)[-_HASHES:]
            return msgspec.structs.replace(now, shas=shas)

        await self._change_answer(path, add_hash)

    async def allow_folder(self, folder: Path) -> None:
        """Trust whatever a folder holds, now and later."""
        await self._change_answer(folder, lambda now: msgspec.structs.replace(now, always=True))

    async def revoke(self, path: Path) -> None:
        """Trust nothing at a path any more."""
        await self._change_answer(path, lambda _: Trusted())

    async def _change_answer(self, path: Path, change: Callable[[Trusted], Trusted]) -> None:
        def write(value: bytes | None) -> bytes:
            answers = _DECODER.decode(value) if value else {}
            changed = change(answers.pop(str(path), Trusted()))
            if changed != Trusted():
                answers[str(path)] = changed
            self._answers = answers
            return msgspec.json.encode(answers)

        if self._store is None:
            write(msgspec.json.encode(self._answers))
        else:
            await change_value(self._store, self._name, _SPACE, _KEY, write)


NAME = "preferences.md"
TOKENS = 500
_LONGEST = 1_000  # characters of a line
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


def append_memory_line(path: Path, line: str) -> str:
    """Append a line to the memory file; returns the line as written."""
    visible = strip_hidden_characters(line).encode(errors="replace").decode()
    words = " ".join(visible.split()).removeprefix("- ")
    if not words:
        raise BadInput("there is nothing to remember; write it behind the command: /remember …")
    if len(words) > _LONGEST:
        raise BadInput(
            f"{len(words):,} characters are too many for one line to remember, {_LONGEST:,} at "
            f"most; write it into {path} yourself, or into an AGENTS.md"
        )
    written = f"- {words}"
    try:
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, _PRIVATE_FILE), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            ended = file.read(1) in {b"", b"\n"}
            file.write((b"" if ended else b"\n") + f"{written}\n".encode())
    except OSError as fault:
        raise BadInput(f"{path} cannot be written: {fault.strerror}") from fault
    return written
