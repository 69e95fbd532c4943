"""The operator's settings as the files have them now, per tenant.

Files are looked at once a second, and read again when one has changed or when the process gets
SIGHUP. A request uses what is in force when it is planned. Settings with a fault are logged, and
those before them stay in force. The address of the store, the tenant of the process and caps of the
session API are read at start only.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from foldline.core.plan import Facts
from foldline.errors import BadInput, FoldlineError
from foldline.models.port import Model
from foldline.session.log_handle import Live
from foldline.session.model_facts import FactsOf, remember_facts
from foldline.session.session_settings import make_facts_of, make_preparation
from foldline.settings.fields import CAPS, GATEWAY
from foldline.settings.layers import find_settings_files
from foldline.settings.tree import RetentionSettings, Settings
from foldline.stores.base import POSTGRES

_LOOK = 1.0  # seconds between two looks at the files
_BOUNDS = (f"{GATEWAY}max_{unit}" for unit in ("messages", "values", "memory"))
_STAY = ("store", "tenant", *_BOUNDS)
_log = logging.getLogger("foldline.gateway.settings")


class CurrentSettings:
    """The settings in force, by tenant."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings] | None = None,
        *,
        files: Collection[Path] = (),
        address: str = "",
    ) -> None:
        self._load, self._files, self._address = load, tuple(files), address
        self._stamp = self._read_stamp()
        self._task: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._use_settings(settings)

    def _use_settings(self, settings: Settings) -> None:
        self.settings = settings
        self._facts: dict[str, Callable[[str], Facts]] = {}

    def find_tenant(self, tenant: str) -> Settings:
        """Return the settings of a tenant that are in force now."""
        return self.settings.find_tenant(tenant)

    def get_retention(self, tenant: str) -> RetentionSettings:
        """Return the retention rule of a tenant."""
        return self.find_tenant(tenant).retention

    def build_relayed_facts(self, model: str, tenant: str) -> Facts:
        """Build the facts of a relayed conversation, or take those of a moment ago."""
        facts_of = self._facts.get(tenant)
        if facts_of is None:
            own = make_facts_of(self.find_tenant(tenant))
            facts_of = self._facts[tenant] = remember_facts(lambda name: own(name, {}))
        return facts_of(model)

    def find_facts_of(self, tenant: str) -> FactsOf:
        """Return what builds the facts of a tenant's sessions of the session API."""
        return make_facts_of(self.find_tenant(tenant))

    async def give_narrator(self, live: Live, client_of: Callable[[str, str], Model]) -> None:
        """Give an opened log the narrator that its tenant's settings name, if they name one.

        `client_of` opens a model by its name, for a tenant.
        """
        tenant = live.name.tenant
        prepare = make_preparation(self.find_tenant(tenant), lambda name: client_of(name, tenant))
        if prepare is None:
            return
        if self.settings.gateway.prepare_folds == "worker" and self._address.startswith(POSTGRES):
            from foldline.session.fold_queue import Deferring  # noqa: PLC0415 - an extra

            live.narrator = Deferring(self._address)
        else:
            await prepare(live)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call a function whenever other settings are in force."""
        self._listeners.append(listener)

    def reload(self, why: str) -> bool:
        """Read the files again; return whether what they say is in force."""
        if self._load is None:
            return False
        self._stamp = self._read_stamp()
        try:
            found = self._load()
        except FoldlineError as fault:
            _log.error("%s: %s; the settings stay as they were", why, fault)
            return False
        if found.untrusted and found.untrusted != self.settings.untrusted:
            names = ", ".join(sorted({one.name for one in found.untrusted}))
            outcome = "nobody has agreed to the folder's settings; all stay as they were"
            _log.error("%s: %s: %s", why, outcome, names)
            return False
        changed = _list_changed_names(self.settings, found)
        self._use_settings(found)
        for listener in self._listeners:
            listener()
        _log.info("%s: settings are read again; %s", why, _describe_changes(changed))
        return True

    def start(self) -> None:
        """Begin to look at the files."""
        if self._load is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look_for_ever())

    async def close(self) -> None:
        """Stop looking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            if self._read_stamp() != self._stamp:
                self.reload("a settings file has changed")

    def _read_stamp(self) -> tuple[tuple[str, int, int], ...]:
        """Say which files are there, with their time and size."""
        files = set(self._files)
        with suppress(OSError, BadInput):
            found = find_settings_files(Path.cwd(), env=os.environ, faults=[])
            files.update(one for one in found if one is not None)
        stamps: list[tuple[str, int, int]] = []
        for file in sorted(files):
            with suppress(OSError):
                status = file.stat()
                stamps.append((str(file), status.st_mtime_ns, status.st_size))
        return tuple(stamps)


def _list_changed_names(before: Settings, now: Settings) -> list[str]:
    names = {*before.values, *now.values}
    return sorted(name for name in names if before.values.get(name) != now.values.get(name))


def _describe_changes(changed: list[str]) -> str:
    if not changed:
        return "none has changed"
    text = f"changed: {', '.join(changed)}"
    late = [name for name in changed if name in _STAY or name.startswith(CAPS)]
    return f"{text}; in force at the next start: {', '.join(late)}" if late else text
