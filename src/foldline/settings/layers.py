"""Loads settings from files, environment, a profile and flags, and merges them.

    settings = load_settings(Path.cwd(), flags={"model": "gpt-6.1-sol"})
    settings.policy, settings.model.name, settings.origins["model.name"]

Weakest first: defaults, the user's file, the project's, the environment, the chosen profile, the
command line. All faults, wherever they are, are reported at once.

    $XDG_CONFIG_HOME/foldline/foldline.toml    the user's (~/.config where that is not set)
    foldline.toml                              the project's: nearest, from here up to its root
"""

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from msgspec import structs

from foldline.errors import BadInput
from foldline.settings import Settings, build_settings
from foldline.settings.fields import (
    GATEWAY,
    PREFIX,
    RESERVED,
    SETTINGS,
    TENANTS,
    find_setting,
    find_setting_by_variable,
    list_slot_values,
)
from foldline.settings.kinds import SettingError, format_setting_value
from foldline.settings.parse import (
    PROFILES,
    list_faults,
    parse_settings,
    parse_single_setting,
    split_profile,
)
from foldline.settings.tree import OF_TENANT, UntrustedSetting

NAMES = ("foldline.toml", "foldline.yaml", "foldline.yml")
FILE = "file://"
_REPOSITORY = (".git", ".hg")
_PACKAGE = ("go.mod", "package.json", "pyproject.toml", "Cargo.toml")
_MOST = 1_000_000  # bytes: more than any settings file has
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_NAME = rf"({_PART}(?:\s*\.\s*{_PART})*)"
_TABLE = re.compile(rf"\s*\[\[?\s*{_NAME}\s*\]")
_KEY = re.compile(rf"\s*{_NAME}\s*=")
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_QUOTES = ('"""', "'''")


@dataclass(frozen=True, slots=True)
class File:
    """A settings file that was read."""

    path: Path
    said: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    body: bytes = b""

    def describe_origin(self, name: str) -> str:
        """Return the file and the line of a setting, or of the table it is in."""
        while name:
            if name in self.lines:
                return f"{self.path}:{self.lines[name]}"
            name = name.rpartition(".")[0]
        return str(self.path)

    def hash_content(self, *more: bytes) -> str:
        """Return the sha256 of the file and of the files it names."""
        parts = (self.body, *more)
        sized = b"".join(b"%d:%b" % (len(part), part) for part in parts)
        return hashlib.sha256(self.body if len(parts) == 1 else sized).hexdigest()


def user_folder(env: Mapping[str, str]) -> Path:
    """Return the user's config folder for Foldline."""
    named = env.get("XDG_CONFIG_HOME", "")
    if named.startswith("/"):
        return Path(named) / "foldline"
    return Path(env.get("HOME") or Path.home()) / ".config" / "foldline"


def find_project_root(folder: Path) -> Path:
    """Return the repository that a folder is in, else its package, else the folder."""
    above = (folder, *folder.parents)
    for marks in (_REPOSITORY, _PACKAGE):
        for one in above:
            if any(_is_there(one / mark) for mark in marks):
                return one
    return folder


def iterate_settings_folders(here: Path) -> Iterator[Path]:
    """Yield the folders that may hold a project's file, the nearest first."""
    last = find_project_root(here)
    for one in (here, *here.parents):
        yield one
        if one == last:
            return


def find_settings_file(folder: Path) -> Path | None:
    """Return the settings file of a folder; raises `SettingError` if there are two."""
    there = [folder / name for name in NAMES if _is_there(folder / name)]
    if len(there) > 1:
        names = " and ".join(path.name for path in there)
        raise SettingError(
            f"{folder} has {names}: keep {there[0].name}, and remove "
            f"{' and '.join(path.name for path in there[1:])}"
        )
    return there[0] if there else None


def _is_there(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib's raises where a folder is another's


def read_settings_file(path: Path) -> File:
    """Read a TOML or YAML file; raises `SettingError` if it cannot be read."""
    body = read_plain_file(path)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise SettingError(
            f"{path} is no text in UTF-8 (byte {fault.start}); save it as UTF-8"
        ) from None
    if path.suffix in (".yaml", ".yml"):
        return _parse_yaml(path, text, body)
    return _parse_toml(path, text, body)


def resolve_path(path: str, folder: Path) -> Path:
    """Resolve a path relative to a folder, or to a home with `~`."""
    try:
        return folder / Path(path).expanduser()
    except RuntimeError:  # there is no such user
        return folder / path


def read_plain_file(path: Path) -> bytes:
    """Return the bytes of a regular file of at most 1 MB; raises `SettingError` otherwise."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise SettingError(f"{path} is no file; remove it, or name another")
        if state.st_size > _MOST:
            raise SettingError(f"{path} has {state.st_size:,} bytes; at most {_MOST:,} are read")
        return path.read_bytes()
    except (OSError, ValueError) as fault:
        if isinstance(fault, SettingError):
            raise
        why = getattr(fault, "strerror", None) or str(fault)
        raise SettingError(f"{path} cannot be read: {why}") from None


def _parse_toml(path: Path, text: str, body: bytes) -> File:
    try:
        said = tomllib.loads(text)
    except RecursionError:
        raise SettingError(f"{path} is no TOML: it is nested too deep") from None
    except ValueError as fault:
        reason = str(fault)
        at = _LINE.search(reason)
        place = f"{path}:{at[1]}" if at else str(path)
        why = _LINE.sub("", reason).strip()
        raise SettingError(
            f"{place} is no TOML: {why}; write lines like name = value, texts in quotes"
        ) from None
    return File(path, said, _toml_lines(text), body)


def _toml_lines(text: str) -> dict[str, int]:
    """Map each name to its line number, as far as single lines can tell."""
    lines: dict[str, int] = {}
    before, inside = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        if table := _TABLE.match(line):
            before = f"{_strip_quotes(table[1])}."
            lines.setdefault(before[:-1], number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{before}{_strip_quotes(key[1])}", number)
            opened = [quote for quote in _QUOTES if line.count(quote) % 2]
            inside = opened[0] if opened else ""
    return lines


def _strip_quotes(name: str) -> str:
    return ".".join(part.strip("\"'") for part in re.findall(_PART, name))


def _parse_yaml(path: Path, text: str, body: bytes) -> File:
    try:
        import yaml  # noqa: PLC0415 - an extra, and few have such a file
    except ImportError:
        raise SettingError(
            f"{path} needs the extra `yaml`: pip install 'foldline[yaml]', or write it in TOML"
        ) from None
    lines: dict[str, int] = {}
    try:
        loader: Any = yaml.SafeLoader(text)
        node: Any = loader.get_single_node()
        _yaml_lines(node, lines)  # before merged keys are put in
        said: Any = {} if node is None else loader.construct_document(node)
    except SettingError as fault:
        raise SettingError(f"{path}:{fault}") from None
    except Exception as fault:  # noqa: BLE001 - the loader raises many kinds
        mark: Any = getattr(fault, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        why = getattr(fault, "problem", None) or " ".join(str(fault).split()) or repr(fault)
        raise SettingError(f"{place} is no YAML: {why}; write lines like name: value") from None
    if not isinstance(said, dict):
        raise SettingError(f"{path} holds no names; write lines like policy: steady")
    return File(path, cast("dict[str, Any]", said), lines, body)


def _yaml_lines(node: Any, lines: dict[str, int], before: str = "", depth: int = 0) -> None:
    """Map each name to its line; raises `SettingError` for a repeated one, as YAML ignores it."""
    pairs: Any = getattr(node, "value", None)
    if getattr(node, "id", "") != "mapping" or depth > 8:  # noqa: PLR2004 - no setting is deeper
        return
    own: set[str] = set()
    for key, value in pairs:
        name, number = f"{before}{key.value}", key.start_mark.line + 1
        if name in own:
            raise SettingError(f"{number} has {name} for the second time; keep one")
        own.add(name)
        lines.setdefault(name, number)
        if len(lines) < _MOST // 100:
            _yaml_lines(value, lines, f"{name}.", depth + 1)


Trusted: TypeAlias = Callable[[Path, str], bool]
"""Says whether a project's file is trusted, given its path and the sha256 of its content."""
_TEXTS = ("compaction.prompt_template", "instructions.text")  # may name a file
_PATHS = ("store", "instructions.roots")
_SHARES = ("compaction.safety_ratio", "compact_threshold")  # at equal rank the last counts
_PROVIDERS = re.compile(r"providers\..*\.compact_threshold")
LINE = "the command line"
_PROFILE = 4
_LINE_RANK = 5
_NEAR = 0.8


class SettingSource(NamedTuple):
    """A value and where it comes from."""

    value: Any
    origin: str
    rank: int
    folder: Path
    """The folder that relative paths in the value refer to."""


@dataclass(slots=True)
class _Layers:
    """The strongest value of each setting so far, and the faults."""

    here: Path
    said: dict[str, SettingSource] = field(default_factory=dict[str, SettingSource])
    held: list[UntrustedSetting] = field(default_factory=list[UntrustedSetting])
    faults: list[str] = field(default_factory=list[str])
    before_profile: dict[str, SettingSource] = field(default_factory=dict[str, SettingSource])
    """What files and environment say, without the chosen profile."""

    def merge_sources(
        self,
        *,
        env: Mapping[str, str],
        flags: Mapping[str, Any] | None = None,
        profile: str | None = None,
        config: Path | None = None,
        trusted: Trusted | None = None,
    ) -> dict[str, Any]:
        """Merge all sources, the weakest first, and return the values in force."""
        user, project = find_settings_files(self.here, env=env, faults=self.faults)
        if user is not None:
            self.add_file(user, 1, None)
        if config is not None:
            self.add_file(config, 2, None)
        elif project is not None:
            self.add_file(project, 2, trusted or (lambda _path, _sha256: False))
        _add_environment(self, env)
        flagged = {**(flags or {}), **({"profile": profile} if profile else {})}
        self.before_profile = {**self.said}
        if "profile" in flagged:
            self.add_value("profile", flagged.pop("profile"), LINE, _LINE_RANK)
        self.apply_profile()
        for name, value in flagged.items():
            self.add_value(name, value, LINE, _LINE_RANK)
        return self.collect_values()

    def list_tenants(self) -> list[str]:
        """List the tenants that have a table of their own."""
        return list_slot_values(self.said, TENANTS)

    def layer_tenant(self, tenant: str) -> "_Layers":
        """Lay a tenant's profile and table over what files and environment say."""
        table = f"{TENANTS}{tenant}."
        flags = {name: one for name, one in self.said.items() if one.rank == _LINE_RANK}
        own = {name: self.said.get(f"{table}{name.removeprefix(GATEWAY)}") for name in OF_TENANT}
        layers = _Layers(self.here, {**self.before_profile}, held=self.held)
        chosen = flags.get("profile") or own.pop("profile")
        if chosen is not None:
            layers.said["profile"] = chosen
        layers.apply_profile()
        said = {name: one._replace(rank=_PROFILE) for name, one in own.items() if one is not None}
        layers.said |= {**said, **flags}
        return layers

    def build_settings(self, values: Mapping[str, Any]) -> Settings:
        """Build typed settings from the values in force."""
        settings = build_settings(values, outranked=self.list_outranked_names())
        return structs.replace(settings, origins={name: self.said[name].origin for name in values})

    def add_file(self, path: Path, rank: int, trusted: Trusted | None) -> None:
        """Add a file's settings; hold back the guarded ones of an untrusted file."""
        try:
            read = read_settings_file(path)
        except SettingError as fault:
            self.faults.append(str(fault))
            return
        found, faults = parse_settings(read.said)
        self.faults += [f"{read.describe_origin(fault.name)}: {fault.message}" for fault in faults]
        free = (
            trusted is None
            or not any(map(_is_guarded, found))
            or trusted(path, _hash_with_texts(read, found))
        )
        for name, value in found.items():
            origin = read.describe_origin(name)
            if free or not _is_guarded(name):
                self.said[name] = SettingSource(value, origin, rank, path.parent)
            else:
                self.held.append(UntrustedSetting(name, value, origin))

    def add_value(self, name: str, value: Any, origin: str, rank: int) -> None:
        """Add the value of a variable or a flag."""
        try:
            found = parse_single_setting(name, value)
        except SettingError as fault:
            self.faults.append(f"{origin}: {fault}")
            return
        for own, one in found.items():
            before = self.said.get(own)
            if before is not None and before.rank == rank:
                message = f"{own} is also set by {before.origin}; keep one"
                self.faults.append(f"{origin}: {message}")
                return
            self.said[own] = SettingSource(one, origin, rank, self.here)

    def apply_profile(self) -> None:
        """Lay the chosen profile over files and environment."""
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
        there = {split_profile(one)[0] for one in self.said} - {""}
        message = f"there is no profile {format_setting_value(name)}"
        if there:
            return f"{message}; there are {', '.join(sorted(there))}"
        return f"{message}; write [profiles.{name}] and its settings below, in one of the files"

    def collect_values(self) -> dict[str, Any]:
        """Return the values in force, with named files read; note conflicting settings."""
        self._resolve_paths()
        self._load_texts()
        said = {name: one.value for name, one in self.said.items() if not split_profile(name)[0]}
        weak = self.list_outranked_names()
        faults = list_faults(said, outranked=weak)
        self.faults += [f"{self.said[one.name].origin}: {one.message}" for one in faults]
        return said

    def _resolve_paths(self) -> None:
        """Resolve relative paths against the folder of the file that says them."""
        for name in _PATHS:
            said = self.said.get(name)
            if said is None:
                continue
            written: str | tuple[str, ...] = said.value
            value = (
                _resolve_local_path(written, said.folder)
                if isinstance(written, str)
                else tuple(_resolve_local_path(path, said.folder) for path in written)
            )
            self.said[name] = said._replace(value=value)

    def _load_texts(self) -> None:
        for name in _TEXTS:
            said = self.said.get(name)
            if said is not None and said.value.startswith(FILE):
                path = _resolve_file_url(said.value, said.folder)
                try:
                    text = read_plain_file(path).decode()
                except (SettingError, UnicodeDecodeError) as fault:
                    why = (
                        fault if isinstance(fault, SettingError) else f"{path} is no text in UTF-8"
                    )
                    self.faults.append(
                        f"{said.origin}: {name} = {format_setting_value(said.value)}: {why}"
                    )
                else:
                    self.said[name] = said._replace(value=text)

    def list_outranked_names(self) -> set[str]:
        """List the names for the fold threshold that a stronger source overrides."""
        both = [name for name in _SHARES if name in self.said]
        weak = {min(both, key=lambda name: self.said[name].rank)} if len(both) > 1 else set[str]()
        if any(self.said[name].rank >= _PROFILE for name in both):
            # The profile's own goes first, for models of every provider.
            weak |= {name for name in self.said if _PROVIDERS.fullmatch(name)}
        return weak


def load_settings(  # noqa: PLR0913 - one keyword per source of settings
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    profile: str | None = None,
    config: Path | None = None,
    trusted: Trusted | None = None,
) -> Settings:
    """Load the settings in force in a folder; raises `BadInput` with all faults.

    `config` replaces the project's file and is trusted, because a person named it. `trusted` says
    whether a project's file may set what could do harm; by default it may not, and
    `Settings.untrusted` lists what was held back.
    """
    layers = _Layers(cwd.absolute())
    env = os.environ if env is None else env
    values = layers.merge_sources(
        env=env, flags=flags, profile=profile, config=config, trusted=trusted
    )
    tenants = {name: layers.layer_tenant(name) for name in layers.list_tenants()}
    tenant_values = {name: one.collect_values() for name, one in tenants.items()}
    if faults := _list_all_faults(layers, tenants):
        raise BadInput(_render_faults(faults))
    return structs.replace(
        layers.build_settings(values),
        untrusted=tuple(layers.held),
        tenants={
            name: structs.replace(one.build_settings(tenant_values[name]), tenant=name)
            for name, one in tenants.items()
        },
    )


def _list_all_faults(layers: _Layers, tenants: Mapping[str, _Layers]) -> list[str]:
    """List all faults; those of a tenant that everybody has are not repeated."""
    found = [*layers.faults]
    for name, one in tenants.items():
        new = (fault for fault in one.faults if fault not in layers.faults)
        found += [f"tenant {name}: {fault}" for fault in new]
    return found


def list_problems(cwd: Path, *, alone: Path | None = None) -> list[str]:
    """List all faults of the settings in a folder, or of one file alone."""
    layers = _Layers(cwd.absolute())
    if alone is None:
        layers.merge_sources(env=os.environ)
    else:
        layers.add_file(alone, 2, None)
        layers.before_profile = {**layers.said}
        layers.apply_profile()
        layers.collect_values()
    tenants = {name: layers.layer_tenant(name) for name in layers.list_tenants()}
    for one in tenants.values():
        one.collect_values()
    return _list_all_faults(layers, tenants)


def find_settings_files(
    cwd: Path, *, env: Mapping[str, str], faults: list[str]
) -> tuple[Path | None, Path | None]:
    """Find the user's file and the project's; a folder with two files is a fault."""
    user = user_folder(env)
    project = (folder for folder in iterate_settings_folders(cwd) if folder != user)
    return _find_first_file([user], faults), _find_first_file(project, faults)


def _find_first_file(folders: Iterable[Path], faults: list[str]) -> Path | None:
    try:
        return next(filter(None, map(find_settings_file, folders)), None)
    except SettingError as fault:
        faults.append(str(fault))
        return None


def _is_guarded(name: str) -> bool:
    setting = find_setting(split_profile(name)[1])
    return setting is not None and setting.guarded


def _hash_with_texts(read: File, found: Mapping[str, Any]) -> str:
    """Hash a file with the texts it names, so that a changed template asks for trust again."""
    more: list[bytes] = []
    for name, value in found.items():
        if split_profile(name)[1] in _TEXTS and value.startswith(FILE):
            try:
                more.append(read_plain_file(_resolve_file_url(value, read.path.parent)))
            except SettingError:
                more.append(b"")  # reported where it is used
    return read.hash_content(*more)


def _resolve_local_path(path: str, folder: Path) -> str:
    if "://" in path or path == ":memory:":
        return path
    return str(resolve_path(path, folder).absolute())


def _resolve_file_url(value: str, folder: Path) -> Path:
    from urllib.parse import unquote  # noqa: PLC0415 - few name a file

    return resolve_path(unquote(value.removeprefix(FILE)), folder)


def _add_environment(layers: _Layers, env: Mapping[str, str]) -> None:
    for key, words in env.items():
        own = key.removeprefix(PREFIX)
        if own == key or own in RESERVED or not words:
            continue
        name = find_setting_by_variable(key)
        if name is not None:
            layers.add_value(name, words, f"env {key}", 3)
        elif own.startswith("PROFILES__"):
            layers.faults.append(
                f"env {key}: profiles stand in files; FOLDLINE_PROFILE=NAME chooses one"
            )
        elif hint := _guess_variable(own):
            layers.faults.append(f"env {key}: there is no such setting; {hint}")


def _guess_variable(own: str) -> str | None:
    """Guess what a mistyped variable meant; one unlike any of ours belongs to others."""
    from difflib import get_close_matches  # noqa: PLC0415 - mistakes are rare

    ours = {one.env.removeprefix(PREFIX) for one in SETTINGS}
    near = get_close_matches(own, ours, n=1, cutoff=_NEAR)
    if near:
        return f"did you mean {PREFIX}{near[0]}?"
    return "`foldline config show --json` lists all" if "__" in own else None


def _render_faults(faults: list[str]) -> str:
    if len(faults) == 1:
        return faults[0]
    numbered = [f"({at}) {fault}" for at, fault in enumerate(faults, 1)]
    return "\n".join([f"{len(faults)} settings are wrong:", *numbered])
