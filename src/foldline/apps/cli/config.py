"""`foldline config`: show the settings in force and their origins, list files, check them."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer

from foldline.apps.cli.context import Desk, make_command
from foldline.apps.cli.exit_codes import DONE, NOTHING, NothingFound
from foldline.apps.cli.output import Column, apply_style, render_table, wrap_text
from foldline.core.names import format_count
from foldline.core.parts import replace_surrogates
from foldline.core.policy import named
from foldline.errors import BadInput
from foldline.settings import Settings, layers
from foldline.settings.fields import (
    SETTINGS,
    SLOT,
    SettingField,
    find_setting,
    guess_setting_name,
    list_slot_values,
    variable_of,
)
from foldline.settings.layers import LINE, find_settings_files, list_problems, load_settings
from foldline.settings.parse import split_profile

_HIDDEN = "…"
_DEFAULT = "default"
_UNSET = "-"
_LONG = 10_000
_WHO = re.compile(r"(\w+://)\S*@")  # up to the last @: a password may hold anything
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
        """The environment variable that sets it; None for a profile's setting."""
        return None if split_profile(self.name)[0] else variable_of(self.name)


def parse_flags(given: Sequence[str] | None) -> dict[str, str]:
    """Parse the values of `--set NAME=VALUE`."""
    said: dict[str, str] = {}
    for one in given or ():
        name, equal, value = one.partition("=")
        if not equal or not name.strip():
            raise BadInput(
                f"--set {replace_surrogates(one)}: write NAME=VALUE, like --set policy=thrifty"
            )
        said[name.strip()] = value
    return said


@make_command
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
    settings = load_settings(here, flags=parse_flags(set_), profile=profile, config=config)
    rows = _select_rows(rows_of(settings), names or [])
    held = [
        SettingRow(one.name, redact_value(one.name, one.value), one.origin)
        for one in settings.untrusted
        if not names or _is_selected(one.name, names)
    ]
    body = {
        "settings": [_encode_row(one) for one in rows],
        "untrusted": [_encode_row(one) for one in held],
    }
    shown = [row for row in rows if every or names or format_value(row.value) != _UNSET]
    labels = _collect_file_labels(here, config)
    desk.print_answer(
        body,
        lambda: [
            *_render_rows(shown, labels),
            *_render_untrusted_rows(held, labels),
            *_render_footer([*shown, *held], len(rows) - len(shown), labels),
        ],
    )
    return DONE if rows or held else NOTHING


def _encode_row(row: SettingRow) -> dict[str, Any]:
    return {"name": row.name, "value": row.value, "origin": row.origin, "env": row.env}


def rows_of(settings: Settings) -> list[SettingRow]:
    """List every setting with its value, or its default if nobody set it."""
    rows: list[SettingRow] = []
    for one in SETTINGS:
        before, slot, behind = one.name.partition(SLOT)
        free = list_slot_values(settings.values, before) if slot else [""]
        for name in (f"{before}{part}{behind}" for part in free):
            if name in settings.values:
                value, origin = settings.values[name], settings.origins[name]
            elif slot:
                continue
            else:
                value, origin = _resolve_default(one, settings)
            rows.append(SettingRow(name, redact_value(name, value), origin))
    return rows


def _resolve_default(one: SettingField, settings: Settings) -> tuple[Any, str]:
    """Return the value of an unset setting, by the policy or by default, and its origin."""
    if not one.policy:
        return one.default, _DEFAULT
    if one.name == "start" and settings.values.get("compaction.enabled") is False:
        return "off", settings.origins["compaction.enabled"]
    return one.read_policy(named(settings.policy.name)), f"policy {settings.policy.name}"


def redact_value(name: str, value: Any) -> Any:
    """Return a value without its secrets."""
    setting = find_setting(split_profile(name)[1])
    if setting is not None and setting.secret and value is not None:
        return dict.fromkeys(cast("Mapping[str, str]", value), _HIDDEN)
    if isinstance(value, tuple):
        return [_without_secrets(str(one)) for one in cast("tuple[object, ...]", value)]
    return _without_secrets(value) if isinstance(value, str) else value


def _without_secrets(text: str) -> str:
    """Hide logins and query strings of the addresses in a text."""
    return _ASKED.sub(rf"\1?{_HIDDEN}", _WHO.sub(rf"\1{_HIDDEN}@", text))


def _select_rows(rows: list[SettingRow], names: Sequence[str]) -> list[SettingRow]:
    """Select rows by the names of settings or of their tables."""
    for name in names:
        if not any(_is_selected(row.name, [name]) for row in rows) and find_setting(name) is None:
            meant = guess_setting_name(name, {row.name.rpartition(".")[0] for row in rows} - {""})
            hint = f"did you mean {meant}?" if meant else "`foldline config show` lists all"
            raise NothingFound(f"there is no setting {replace_surrogates(name)!r}; {hint}")
    return [row for row in rows if not names or _is_selected(row.name, names)]


def _is_selected(name: str, wanted: Sequence[str]) -> bool:
    return any(name == one or name.startswith(f"{one.rstrip('.')}.") for one in wanted)


def _render_rows(rows: Sequence[SettingRow], labels: Mapping[str, str]) -> list[str]:
    if not rows:
        return []
    heads = (Column("setting", most=44), Column("value"), Column("from", most=17))
    cells = [
        (row.name, format_value(row.value), _format_origin(row.origin, labels)) for row in rows
    ]
    first, *lines = render_table(heads, cells)
    own = [
        apply_style(line, "dim" if _is_default(row) else None)
        for line, row in zip(lines, rows, strict=True)
    ]
    return [first, *own]


def _is_default(row: SettingRow) -> bool:
    return row.origin == _DEFAULT or row.origin.startswith("policy ")


def format_value(value: Any) -> str:
    """Format a value in one line, as a settings file would."""
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


def _collect_file_labels(here: Path, config: Path | None) -> dict[str, str]:
    """Map each settings file to the word that stands for it in the table."""
    user, project = find_settings_files(here, env=os.environ, faults=[])
    found = {user: "user", project: "project"}
    if config is not None:
        found[config] = "config"
    return {str(path): word for path, word in found.items() if path is not None}


def _format_origin(origin: str, labels: Mapping[str, str]) -> str:
    """Shorten an origin; the footer names the files."""
    for words, short in (("policy ", "policy"), ("env ", "environment"), (LINE, "flag")):
        if origin.startswith(words):
            return short
    who = re.match(r"profile \S+ in ", origin)
    place = origin[who.end() :] if who else origin
    for path, word in labels.items():
        if place == path or place.startswith(f"{path}:"):
            place = place.replace(path, word, 1)
    return f"profile, {place}" if who else place


def _render_untrusted_rows(held: Sequence[SettingRow], labels: Mapping[str, str]) -> list[str]:
    if not held:
        return []
    warning = wrap_text(
        "The project's file is not trusted; so these settings of it are not in force:"
    )
    return ["", *(apply_style(line, "yellow") for line in warning), *_render_rows(held, labels)]


def _render_footer(rows: Sequence[SettingRow], more: int, labels: Mapping[str, str]) -> list[str]:
    used = {word: path for path, word in labels.items() if any(path in row.origin for row in rows)}
    lines = [f"{word:8} {replace_surrogates(path)}" for word, path in used.items()]
    lines += [f"{more} more are not set: --all lists them"] if more else []
    return ["", *(apply_style(line, "dim") for line in lines)] if lines else []


@make_command
async def path(desk: Desk) -> int:
    """Say which files are looked at, and which are there."""
    here, faults = Path.cwd(), list[str]()
    user, project = find_settings_files(here, env=os.environ, faults=faults)
    looked = [
        ("user", layers.user_folder(os.environ) / layers.NAMES[0], user),
        *(
            ("project", folder / layers.NAMES[0], project)
            for folder in layers.iterate_settings_folders(here)
        ),
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
    lines: list[str] = []
    for whose, one, there in rows:
        state = "read" if one == there else "not read" if one.exists() else "not there"
        # The path is never cut: a cut one cannot be copied.
        lines.append(f"{whose:8} {state:9} {replace_surrogates(str(one))}")
    desk.print_answer(body, lambda: [*lines, *(line for one in faults for line in wrap_text(one))])
    return NOTHING if faults else DONE


@make_command
async def check(
    desk: Desk,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="One file alone; else all that is in force here."),
    ] = None,
) -> int:
    """Say that settings are right, or everything that is wrong with them."""
    found = list_problems(Path.cwd(), alone=file)
    what = str(file) if file else "the settings in force here"
    lines = [line for fault in found for line in wrap_text(fault)]
    count = apply_style(format_count(len(found), "fault"), "dim")
    desk.print_answer(
        {"ok": not found, "faults": found},
        lambda: [*lines, count] if found else [f"{replace_surrogates(what)}: ok"],
    )
    return NOTHING if found else DONE
