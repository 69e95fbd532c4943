"""Whose instructions are followed: agreed to by path and hash, R-61.

    trust = Trust(store)                     # answers are kept in the store's side table
    await trust.load()
    trust.trusted(path, sha)                 # asks nobody, only looks
    await trust.trust(path, sha)             # these words, and no others
    await trust.always(folder)               # everything in it, also when it changes: by path only

Without a store answers hold for the process. Knows paths and hashes. Refuses to know files, and to
ask: a surface does that.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from foldline.errors import Conflict
from foldline.stores.base import Name, Store

_SPACE, _KEY = "trusted", "instructions"
_HASHES = 8  # of one path: branches that are gone back and forth between
_TRIES = 20


class Trusted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was agreed to: some contents of a file, or whatever a folder holds."""

    shas: tuple[str, ...] = ()
    """The newest last."""
    always: bool = False
    """By path only, it and everything below it."""


_Answers: TypeAlias = dict[str, Trusted]
_DECODER = msgspec.json.Decoder(dict[str, Trusted])


class Trust:
    """The answers that a user gave."""

    def __init__(self, store: Store | None = None, *, tenant: str = "local") -> None:
        self._store, self._name = store, Name(tenant, "")
        self._answers: _Answers = {}

    async def load(self) -> None:
        """Look what was answered, here or in another process."""
        await self._read()

    def trusted(self, path: Path, sha: str) -> bool:
        """Whether these words at this path were agreed to, or whatever stands there."""
        above = (self._answers.get(str(one), Trusted()) for one in (path, *path.parents))
        return self.exactly(path, sha) or any(one.always for one in above)

    def exactly(self, path: Path, sha: str) -> bool:
        """Whether these words were agreed to, whatever holds for the folder: settings run programs.

        "Always in this folder" was said of instructions.
        """
        return sha in self._answers.get(str(path), Trusted()).shas

    def known(self, path: Path) -> bool:
        """Whether other words at this path were agreed to."""
        return bool(self._answers.get(str(path), Trusted()).shas)

    async def trust(self, path: Path, sha: str) -> None:
        """Agree to these words at this path."""

        def agreed(now: Trusted) -> Trusted:
            shas = (*(one for one in now.shas if one != sha), sha)[-_HASHES:]
            return msgspec.structs.replace(now, shas=shas)

        await self._change(path, agreed)

    async def always(self, folder: Path) -> None:
        """Agree to whatever a folder holds, now and later."""
        await self._change(folder, lambda now: msgspec.structs.replace(now, always=True))

    async def revoke(self, path: Path) -> None:
        """Take back what was agreed to at a path."""
        await self._change(path, lambda _: Trusted())

    def listed(self) -> dict[Path, Trusted]:
        """All that was agreed to, by path."""
        return {Path(path): self._answers[path] for path in sorted(self._answers)}

    async def _change(self, path: Path, change: Callable[[Trusted], Trusted]) -> None:
        version = 0
        for _ in range(_TRIES):
            version = await self._read()
            changed = change(self._answers.get(str(path), Trusted()))
            answers = {**self._answers, str(path): changed}
            if changed == Trusted():
                del answers[str(path)]
            if await self._write(answers, version):
                return
        raise Conflict("trusted instructions", version, version + 1)

    async def _read(self) -> int:
        if self._store is None:
            return 0
        entry = await self._store.get(self._name, _SPACE, _KEY)
        self._answers = _DECODER.decode(entry.value) if entry else {}
        return entry.version if entry else 0

    async def _write(self, answers: _Answers, version: int) -> bool:
        if self._store is not None:
            value = msgspec.json.encode(answers)
            if not await self._store.put(self._name, _SPACE, _KEY, value, version=version):
                return False
        self._answers = answers
        return True
