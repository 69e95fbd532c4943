"""The settings in force: files, environment, a profile and flags, laid over each other.

    settings = load(Path.cwd(), flags={"model": "gpt-5"})
    settings.policy, settings.model.name, settings.origins["model.name"]

Weakest first: defaults, the user's file, the project's, the environment, the profile that is
chosen, the command line. Knows these places and which of them a stranger wrote. Refuses to know
what a setting does. All that is wrong anywhere is told at once.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from foldline.errors import BadInput
from foldline.settings import Settings, files, made, names, schema
from foldline.settings.files import FILE, File
from foldline.settings.kinds import Wrong, shown
from foldline.settings.parse import PROFILES, checked, crossed, parted, spoken
from foldline.settings.values import Held

Trusted: TypeAlias = Callable[[Path, str], bool]
"""Whether a project's file is trusted: its path, and the sha256 of what it says."""
_TEXTS = ("compaction.prompt_template", "instructions.text")  # that may stand in a file
_PATHS = ("store", "instructions.roots")
_SHARES = ("compaction.safety_ratio", "compact_threshold")  # of equals the last counts
LINE = "the command line"
_PROFILE = 4
_NEAR = 0.8


class SettingSource(NamedTuple):
    """A value, and who says so."""

    value: Any
    origin: str
    rank: int
    folder: Path
    """Where the files lie that it names."""


@dataclass(slots=True)
class _Layers:
    """What was said so far, the strongest on top, and what is wrong."""

    here: Path
    said: dict[str, SettingSource] = field(default_factory=dict[str, SettingSource])
    held: list[Held] = field(default_factory=list[Held])
    faults: list[str] = field(default_factory=list[str])

    def lay(
        self,
        *,
        env: Mapping[str, str],
        flags: Mapping[str, Any] | None = None,
        profile: str | None = None,
        config: Path | None = None,
        trusted: Trusted | None = None,
    ) -> dict[str, Any]:
        """All places over each other, the weakest first: what is in force."""
        user, project = places(self.here, env=env, faults=self.faults)
        if user is not None:
            self.file(user, 1, None)
        if config is not None:
            self.file(config, 2, None)
        elif project is not None:
            self.file(project, 2, trusted or _nobody)
        _environment(self, env)
        given = {**(flags or {}), **({"profile": profile} if profile else {})}
        if "profile" in given:
            self.words("profile", given.pop("profile"), LINE, 5)
        self.profile()
        for name, value in given.items():
            self.words(name, value, LINE, 5)
        return self.values()

    def file(self, path: Path, rank: int, trusted: Trusted | None) -> None:
        """What a file says; of a stranger's, what is harmless."""
        try:
            read = files.read(path)
        except Wrong as wrong:
            self.faults.append(str(wrong))
            return
        found, faults = checked(read.said)
        self.faults += [f"{read.origin(fault.name)}: {fault.told}" for fault in faults]
        free = trusted is None or not _guarded(found) or trusted(path, _sealed(read, found))
        for name, value in found.items():
            origin = read.origin(name)
            if free or not _is_guarded(name):
                self.said[name] = SettingSource(value, origin, rank, path.parent)
            else:
                self.held.append(Held(name, value, origin))

    def words(self, name: str, value: Any, origin: str, rank: int) -> None:
        """What a variable or a flag says."""
        try:
            found = spoken(name, value)
        except Wrong as wrong:
            self.faults.append(f"{origin}: {wrong}")
            return
        for own, one in found.items():
            before = self.said.get(own)
            if before is not None and before.rank == rank:
                told = f"{own} is also set by {before.origin}; keep one"
                self.faults.append(f"{origin}: {told}")
                return
            self.said[own] = SettingSource(one, origin, rank, self.here)

    def profile(self) -> None:
        """What the profile that is chosen says, over files and environment."""
        chosen = self.said.get("profile")
        if chosen is None or not chosen.value:
            return
        before = f"{PROFILES}{chosen.value}."
        own = {name: said for name, said in self.said.items() if name.startswith(before)}
        held = any(name.startswith(before) for name, _, _ in self.held)
        if not own and not held:
            self.faults.append(f"{chosen.origin}: {self._no_profile(chosen.value)}")
        for name, said in own.items():
            origin = f"profile {chosen.value} in {said.origin}"
            value = said._replace(origin=origin, rank=_PROFILE)
            self.said[name.removeprefix(before)] = value

    def _no_profile(self, name: str) -> str:
        there = {parted(one)[0] for one in self.said} - {""}
        told = f"there is no profile {shown(name)}"
        if there:
            return f"{told}; there are {', '.join(sorted(there))}"
        return f"{told}; write [profiles.{name}] and its settings below, in one of the files"

    def values(self) -> dict[str, Any]:
        """What is in force, with the words of files that are named; and what does not go along."""
        self._paths()
        self._texts()
        said = {name: one.value for name, one in self.said.items() if not parted(name)[0]}
        self.faults += [f"{self.said[one.name].origin}: {one.told}" for one in crossed(said)]
        return said

    def _paths(self) -> None:
        """What is relative is so to the file that says it."""
        for name in _PATHS:
            said = self.said.get(name)
            if said is not None:
                several = isinstance(said.value, tuple)
                found = tuple(_beside(one, said.folder) for one in _listed(said.value))
                self.said[name] = said._replace(value=found if several else found[0])

    def _texts(self) -> None:
        """Put in the text of files that are named."""
        for name in _TEXTS:
            said = self.said.get(name)
            if said is not None and said.value.startswith(FILE):
                path = _named(said.value, said.folder)
                try:
                    text = files.plain(path).decode()
                except (Wrong, UnicodeDecodeError) as wrong:
                    why = wrong if isinstance(wrong, Wrong) else f"{path} is no text in UTF-8"
                    self.faults.append(f"{said.origin}: {name} = {shown(said.value)}: {why}")
                else:
                    self.said[name] = said._replace(value=text)

    def outranked(self, provider: str) -> set[str]:
        """Of the names for one share, those that a stronger place speaks over."""
        both = [name for name in _SHARES if name in self.said]
        weak = {min(both, key=lambda name: self.said[name].rank)} if len(both) > 1 else set[str]()
        if any(self.said[name].rank >= _PROFILE for name in both):
            weak.add(f"providers.{provider}.compact_threshold")  # the agent's own goes first
        return weak


def load(  # noqa: PLR0913 - one keyword for each place that settings come from
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    profile: str | None = None,
    config: Path | None = None,
    trusted: Trusted | None = None,
) -> Settings:
    """The settings in force in a folder; `BadInput` tells all that is wrong.

    `config` is a file that is read instead of the project's, and trusted: a person named it.
    `trusted` says of a project's file whether it may set what could do harm; without it, it may
    not: `Settings.untrusted` has what is held back.
    """
    layers = _Layers(cwd.absolute())
    env = os.environ if env is None else env
    values = layers.lay(env=env, flags=flags, profile=profile, config=config, trusted=trusted)
    if layers.faults:
        raise BadInput(_told(layers.faults))
    settings = made(values)
    if weak := layers.outranked(settings.model.provider):
        settings = made(values, outranked=weak)
    origins = {name: layers.said[name].origin for name in values}
    return replace(settings, origins=origins, untrusted=tuple(layers.held))


def problems(cwd: Path, *, alone: Path | None = None) -> list[str]:
    """All that is wrong with what is in force in a folder, or with one file alone."""
    layers = _Layers(cwd.absolute())
    if alone is None:
        layers.lay(env=os.environ)
    else:
        layers.file(alone, 2, None)
        layers.profile()
        layers.values()
    return layers.faults


def places(
    cwd: Path, *, env: Mapping[str, str], faults: list[str]
) -> tuple[Path | None, Path | None]:
    """The user's file and the project's, where there is one; folders with two are faults."""
    user = files.user_folder(env)
    there: list[Path | None] = []
    for folders in ([user], [one for one in files.folders(cwd) if one != user]):
        path = None
        for folder in folders:
            try:
                path = files.found(folder)
            except Wrong as wrong:
                faults.append(str(wrong))
                break
            if path is not None:
                break
        there.append(path)
    return there[0], there[1]


def _nobody(_path: Path, _sha256: str) -> bool:
    return False


def _is_guarded(name: str) -> bool:
    setting = names.find(parted(name)[1])
    return setting is not None and setting.guarded


def _guarded(found: Mapping[str, Any]) -> bool:
    return any(map(_is_guarded, found))


def _sealed(read: File, found: Mapping[str, Any]) -> str:
    """The sha256 that is trusted: a changed template asks again, though the file is the same."""
    more: list[bytes] = []
    for name, value in found.items():
        if parted(name)[1] in _TEXTS and value.startswith(FILE):
            try:
                more.append(files.plain(_named(value, read.path.parent)))
            except Wrong:
                more.append(b"")  # told of where it is used
    return read.sealed(*more)


def _listed(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _beside(path: str, folder: Path) -> str:
    if "://" in path or path == ":memory:":
        return path
    return str(files.beside(path, folder).absolute())


def _named(value: str, folder: Path) -> Path:
    from urllib.parse import unquote  # noqa: PLC0415 - few name a file

    return files.beside(unquote(value.removeprefix(FILE)), folder)


def _environment(layers: _Layers, env: Mapping[str, str]) -> None:
    for key, words in env.items():
        own = key.removeprefix(schema.PREFIX)
        if own == key or own in names.RESERVED or not words:
            continue
        name = names.setting(key)
        if name is not None:
            layers.words(name, words, f"env {key}", 3)
        elif own.startswith("PROFILES__"):
            layers.faults.append(
                f"env {key}: profiles stand in files; FOLDLINE_PROFILE=NAME chooses one"
            )
        elif hint := _hint(own):
            layers.faults.append(f"env {key}: there is no such setting; {hint}")


def _hint(own: str) -> str | None:
    """What a mistyped variable may have meant; one that is like none of ours is another's."""
    from difflib import get_close_matches  # noqa: PLC0415 - mistakes are rare

    ours = {one.env.removeprefix(schema.PREFIX) for one in schema.KNOWN}
    near = get_close_matches(own, ours, n=1, cutoff=_NEAR)
    if near:
        return f"did you mean {schema.PREFIX}{near[0]}?"
    return "`foldline config show --json` lists all" if "__" in own else None


def _told(faults: list[str]) -> str:
    if len(faults) == 1:
        return faults[0]
    numbered = [f"({at}) {fault}" for at, fault in enumerate(faults, 1)]
    return "\n".join([f"{len(faults)} settings are wrong:", *numbered])
