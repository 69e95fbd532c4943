"""The page docs/reference/commands.md: every command and option, from the command line itself."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

import typer
from from_source import cell, code, plain, table

from foldline.apps.cli.app import build_app
from foldline.apps.cli.context import SHARED

WORDS = """What `foldline COMMAND --help` says, on one page. What holds for every command, exit
codes and what `--json` gives is told in [The command line](cli.md). `--store`, `--tenant` and
`--json` may stand before any command or behind it, and are left out below."""


def page() -> str:
    """The whole page."""
    line: Any = typer.main.get_command(build_app(["--help"]))
    parts = [
        "# Commands",
        "<!-- made by scripts/make_reference.py from src/foldline/cli: change that -->",
        WORDS,
    ]
    rows = [
        (f"[`foldline {name}`](#{_anchor(name)})", cell(_first(command)))
        for name, command in _commands(line)
    ]
    parts.append(table(("command", "what it does"), rows))
    for name, command in _commands(line):
        parts += _told(name, command)
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from _commands(command, f"{before}{name} ")
        elif not command.hidden:
            yield f"{before}{name}", command


def _told(name: str, command: Any) -> Iterator[str]:
    given = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    own = [one for one in options if one.name not in SHARED and not one.hidden]
    words = " ".join(["foldline", name, *map(_place, given), *(["[OPTIONS]"] if own else [])])
    yield f"## `foldline {name}`"
    yield f"```text\n{words}\n```"
    yield plain(command.help or "")
    if told := [(code(_called(one)), cell(one.help or "")) for one in given]:
        yield table(("argument", "meaning"), told)
    if rows := [(code(_spelled(one)), _default(one), cell(one.help or "")) for one in own]:
        yield table(("option", "default", "meaning"), rows)


def _first(command: Any) -> str:
    return plain(command.help or "").partition("\n\n")[0]


def _called(one: Any) -> str:
    return one.metavar or one.name.rstrip("_").upper()


def _place(one: Any) -> str:
    words = _called(one) + ("…" if one.nargs == -1 else "")
    return words if one.required else f"[{words}]"


def _spelled(one: Any) -> str:
    words = ", ".join((*one.opts, *one.secondary_opts))
    if one.is_flag:
        return words
    return f"{words} {one.metavar or _kind(one)}" + (" …" if one.multiple else "")


def _kind(one: Any) -> str:
    kind: Any = one.type_descriptor.annotation
    if choices := get_args(kind):
        return "|".join(map(str, choices))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return {"int": "NUMBER", "float": "NUMBER", "Path": "FILE"}.get(
        getattr(kind, "__name__", ""), "TEXT"
    )


def _default(one: Any) -> str:
    """What holds where an option is not given; a callable's default is its caller's business."""
    shown = one.default
    if shown in (None, False, [], (), "") or callable(shown) or not one.show_default:
        return ""
    if isinstance(shown, list | tuple):
        return code(", ".join(map(str, shown)))
    return code("on" if shown is True else str(shown))


def _anchor(name: str) -> str:
    return f"foldline-{name.replace(' ', '-')}"
