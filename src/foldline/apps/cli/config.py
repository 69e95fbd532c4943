"""`foldline config`: which settings are in force and who says so, where files lie, what is wrong.

Knows how settings are shown to a person. Refuses to decide any: `settings.layers` does.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer

from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NOTHING, NothingFound
from foldline.apps.cli.output import Column, paint, table, wrapped
from foldline.core.parts import sound
from foldline.core.policy import named
from foldline.core.saying import many
from foldline.errors import BadInput
from foldline.settings import Settings, files
from foldline.settings.layers import LINE, load, places, problems
from foldline.settings.names import find, near
from foldline.settings.parse import parted, slots
from foldline.settings.schema import KNOWN, SLOT, Known, variable

_HIDDEN = "…"
_DEFAULT = "default"
_UNSET = "-"
_LONG = 10_000
_WHO = re.compile(r"(\w+://)\S*@")  # a password may hold anything
_ASKED = re.compile(r"(\w+://[^\s?]*)\?\S+")
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="The profile to use.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Read this file instead of the project's."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, over all others; repeatable."),
]


class SettingRow(NamedTuple):
    """A setting in force."""

    name: str
    value: Any
    """Without secrets."""
    origin: str

    @property
    def env(self) -> str | None:
        """The variable that sets it; what a profile says has none."""
        return None if parted(self.name)[0] else variable(self.name)


def flags(given: Sequence[str] | None) -> dict[str, str]:
    """What `--set NAME=VALUE` says."""
    said: dict[str, str] = {}
    for one in given or ():
        name, equal, value = one.partition("=")
        if not equal or not name.strip():
            raise BadInput(f"--set {sound(one)}: write NAME=VALUE, like --set policy=thrifty")
        said[name.strip()] = value
    return said


@command
async def show(  # noqa: PLR0913 - the options are the interface
    desk: Desk,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Settings, or tables of them.")
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Also what is not set and has no default.")
    ] = False,
    profile: ProfileOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Show the settings in force, and where each value came from."""
    here = Path.cwd()
    settings = load(here, flags=flags(set_), profile=profile, config=config)
    rows = _wanted(rows_of(settings), names or [])
    held = [
        SettingRow(one.name, masked(one.name, one.value), one.origin)
        for one in settings.untrusted
        if not names or _named(one.name, names)
    ]
    body = {"settings": [_body(one) for one in rows], "untrusted": [_body(one) for one in held]}
    shown = [row for row in rows if every or names or said(row.value) != _UNSET]
    labels = _labels(here, config)
    desk.answer(
        body,
        lambda: [
            *_table(shown, labels),
            *_untrusted(held, labels),
            *_footer([*shown, *held], len(rows) - len(shown), labels),
        ],
    )
    return DONE if rows or held else NOTHING


def _body(row: SettingRow) -> dict[str, Any]:
    return {"name": row.name, "value": row.value, "origin": row.origin, "env": row.env}


def rows_of(settings: Settings) -> list[SettingRow]:
    """Every setting: those that somebody set, and the others as they are where nobody does."""
    rows: list[SettingRow] = []
    for one in KNOWN:
        before, slot, behind = one.name.partition(SLOT)
        free = slots(settings.said, before) if slot else [""]
        for name in (f"{before}{part}{behind}" for part in free):
            if name in settings.said:
                value, origin = settings.said[name], settings.origins[name]
            elif slot:
                continue
            else:
                value, origin = _unsaid(one, settings)
            rows.append(SettingRow(name, masked(name, value), origin))
    return rows


def _unsaid(one: Known, settings: Settings) -> tuple[Any, str]:
    """What a setting is that nobody set: the policy's word, or the default."""
    if one.of is None:
        return one.default, _DEFAULT
    if one.name == "start" and settings.said.get("compaction.enabled") is False:
        return "off", settings.origins["compaction.enabled"]
    return one.of(named(settings.policy.name)), f"policy {settings.policy.name}"


def masked(name: str, value: Any) -> Any:
    """A value as a person may see it: without secrets."""
    setting = find(parted(name)[1])
    if setting is not None and setting.secret and value is not None:
        return dict.fromkeys(cast("Mapping[str, str]", value), _HIDDEN)
    if isinstance(value, tuple):
        return [_without_secrets(one) for one in cast("tuple[str, ...]", value)]
    return _without_secrets(value) if isinstance(value, str) else value


def _without_secrets(text: str) -> str:
    """Addresses in a text without who goes there, and without what is asked of them."""
    return _ASKED.sub(rf"\1?{_HIDDEN}", _WHO.sub(rf"\1{_HIDDEN}@", text))


def _wanted(rows: list[SettingRow], names: Sequence[str]) -> list[SettingRow]:
    """Those that were asked for, by name or by a table's."""
    for name in names:
        if not any(_named(row.name, [name]) for row in rows) and find(name) is None:
            meant = near(name, {row.name.rpartition(".")[0] for row in rows} - {""})
            hint = f"did you mean {meant}?" if meant else "`foldline config show` lists all"
            raise NothingFound(f"there is no setting {sound(name)!r}; {hint}")
    return [row for row in rows if not names or _named(row.name, names)]


def _named(name: str, wanted: Sequence[str]) -> bool:
    return any(name == one or name.startswith(f"{one.rstrip('.')}.") for one in wanted)


def _table(rows: Sequence[SettingRow], labels: Mapping[str, str]) -> list[str]:
    if not rows:
        return []
    heads = (Column("setting", most=44), Column("value"), Column("from", most=17))
    cells = [(row.name, said(row.value), _label(row.origin, labels)) for row in rows]
    first, *lines = table(heads, cells)
    own = [
        paint(line, "dim" if _is_default(row) else None)
        for line, row in zip(lines, rows, strict=True)
    ]
    return [first, *own]


def _is_default(row: SettingRow) -> bool:
    return row.origin == _DEFAULT or row.origin.startswith("policy ")


def said(value: Any) -> str:
    """A value as a file would have it, in one line."""
    match value:
        case None | "" | []:
            return _UNSET
        case bool():
            return str(value).lower()
        case int() if value >= _LONG:
            return f"{value:_}"
        case float():
            return f"{value:g}"
        case list() | dict():
            several = cast("list[str] | dict[str, str]", value)
            pairs = several.items() if isinstance(several, dict) else ()
            return ", ".join([f"{key}={one}" for key, one in pairs] or several)
        case _:
            return str(value)


def _labels(here: Path, config: Path | None) -> dict[str, str]:
    """The files that may be named, in a word each."""
    user, project = places(here, env=os.environ, faults=[])
    found = {user: "user", project: "project"}
    if config is not None:
        found[config] = "config"
    return {str(path): word for path, word in found.items() if path is not None}


def _label(origin: str, labels: Mapping[str, str]) -> str:
    """An origin in few columns: the files are named below."""
    for words, short in (("policy ", "policy"), ("env ", "environment"), (LINE, "flag")):
        if origin.startswith(words):
            return short
    who = re.match(r"profile \S+ in ", origin)
    place = origin[who.end() :] if who else origin
    for path, word in labels.items():
        if place == path or place.startswith(f"{path}:"):
            place = place.replace(path, word, 1)
    return f"profile, {place}" if who else place


def _untrusted(held: Sequence[SettingRow], labels: Mapping[str, str]) -> list[str]:
    if not held:
        return []
    told = wrapped("The project's file is not trusted; so these settings of it are not in force:")
    return ["", *(paint(line, "yellow") for line in told), *_table(held, labels)]


def _footer(rows: Sequence[SettingRow], more: int, labels: Mapping[str, str]) -> list[str]:
    used = {word: path for path, word in labels.items() if any(path in row.origin for row in rows)}
    files_ = [f"{word:8} {sound(path)}" for word, path in used.items()]
    rest = [f"{more} more are not set: --all lists them"] if more else []
    return ["", *map(_dim, [*files_, *rest])] if files_ or rest else []


def _dim(text: str) -> str:
    return paint(text, "dim")


@command
async def path(desk: Desk) -> int:
    """Say which files are looked at, and which are there."""
    here, faults = Path.cwd(), list[str]()
    user, project = places(here, env=os.environ, faults=faults)
    looked = [
        ("user", files.user_folder(os.environ) / files.NAMES[0], user),
        *(("project", folder / files.NAMES[0], project) for folder in files.folders(here)),
    ]
    rows = [
        (whose, there if there and there.parent == usual.parent else usual, there)
        for whose, usual, there in looked
    ]
    body = {
        "files": [
            {"whose": whose, "path": str(one), "read": one == there} for whose, one, there in rows
        ]
    }
    # Whole, however long: a path that is cut cannot be copied.
    lines = [
        f"{whose:8} {'read' if one == there else _absent(one):9} {sound(str(one))}"
        for whose, one, there in rows
    ]
    desk.answer(body, lambda: [*lines, *(line for one in faults for line in wrapped(one))])
    return NOTHING if faults else DONE


def _absent(path: Path) -> str:
    return "not read" if path.exists() else "not there"


@command
async def check(
    desk: Desk,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="One file alone; else all that is in force here."),
    ] = None,
) -> int:
    """Say that settings are right, or everything that is wrong with them."""
    found = problems(Path.cwd(), alone=file)
    what = str(file) if file else "the settings in force here"
    lines = [line for fault in found for line in wrapped(fault)]
    count = paint(many(len(found), "fault"), "dim")
    desk.answer(
        {"ok": not found, "faults": found},
        lambda: [*lines, count] if found else [f"{sound(what)}: ok"],
    )
    return NOTHING if found else DONE
