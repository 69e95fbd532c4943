"""The command line: its commands by name, its help, and how every run of it ends.

Knows which function is which command, and that whoever scripts against it reads exit codes. Refuses
to know what a command does. No error of ours is shown as a traceback.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from foldline import __version__
from foldline.apps.cli.context import JsonOption, StoreOption, TenantOption, desk
from foldline.apps.cli.exit_codes import DONE, MEANINGS, STOPPED, USAGE, meaning
from foldline.apps.cli.output import remark

_HELP = """Keep LLM conversations inside the window, and see what the model saw.

Begin with `foldline import ~/.claude/projects`, then `foldline sessions` and
`foldline context NAME`. The beginning of a name is enough."""
_CODES = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in MEANINGS.items()) + "."
_STEPS = {
    "chat": "chat:chat",
    "import": "import_:take",
    "sessions": "show:sessions",
    "context": "show:context",
    "show": "show:show",
    "history": "history:history",
    "search": "history:search",
    "plan": "plan:plan",
    "fold": "fold:fold",
    "undo": "fold:undo",
    "pin": "fold:pin",
    "export": "export:export",
    "erase": "export:erase",
    "models": "catalogue:models",
    "doctor": "doctor:doctor",
    "worker": "worker:worker",
    "mcp": "mcp:mcp",
    "config show": "config:show",
    "config path": "config:path",
    "config check": "config:check",
    "serve": "serve:serve",
    "bot": "bot:bot",
    "keys add": "serve:add_key",
    "schedule add": "schedule:add",
    "schedule list": "schedule:listed",
    "schedule next": "schedule:upcoming",
    "schedule pause": "schedule:pause",
    "schedule resume": "schedule:resume",
    "schedule remove": "schedule:remove",
    "schedule fire": "schedule:fire",
    "schedule run": "schedule:run",
    "lab compare": "lab:compare",
    "lab cost": "lab_cost:cost",
}
_GROUPS = {
    "config": "The settings: which are in force, who says so, and what is wrong with them.",
    "keys": "Keys of the gateway's own.",
    "schedule": "Entries that speak into sessions at their times, as `cron`.",
    "lab": "What sessions that happened cost, and what they would have cost and kept.",
}


def app(arguments: Sequence[str]) -> typer.Typer:
    """The line with the commands that are named in it, else all: the rest need not be imported."""
    said = {*arguments}
    firsts = {name.partition(" ")[0] for name in _STEPS}
    wanted = said & firsts if not said & {"-h", "--help"} else set[str]()
    made = _line(_HELP)
    made.callback()(_shared)
    groups = {name: _line(told) for name, told in _GROUPS.items()}
    for name, step in _STEPS.items():
        first, _, second = name.partition(" ")
        if first in wanted or not wanted:
            module, _, function = step.partition(":")
            work = getattr(import_module(f"foldline.apps.cli.{module}"), function)
            (groups[first] if second else made).command(second or first)(work)
    for name, group in groups.items():
        if group.registered_commands:
            group.callback()(_grouped)
            made.add_typer(group, name=name)
    return made


def _line(told: str) -> typer.Typer:
    return typer.Typer(
        help=told,
        epilog=_CODES,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    )


def _grouped() -> None:
    """A group stays one, also with a single command."""


def _version(asked: bool) -> None:  # noqa: FBT001 - the shape of an option's callback
    if asked:
        sys.stdout.write(f"foldline {__version__}\n")
        raise typer.Exit


def _shared(
    ctx: typer.Context,
    *,
    store_: StoreOption = None,
    tenant_: TenantOption = None,
    json_: JsonOption = False,
    _: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which this is."),
    ] = False,
) -> None:
    """What was said before the command holds for it."""
    ctx.obj = desk(store=store_, tenant=tenant_, json=json_)


def run(arguments: Sequence[str]) -> int:
    """One run of the command; its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a letter shows a mark
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = app(arguments)(list(arguments), prog_name="foldline", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _unread()
    except (KeyboardInterrupt, typer.Abort):
        remark("interrupted")
        return STOPPED
    except typer.TyperException as fault:
        return _misused(fault)
    except Exception as fault:  # noqa: BLE001 - no error is shown as a traceback
        return failed(fault)
    return code if isinstance(code, int) else DONE


def failed(fault: Exception) -> int:
    """Tell of an error in one line; its exit code."""
    if os.environ.get("FOLDLINE_DEBUG"):
        raise fault
    number, line = meaning(fault)
    remark(line)
    return number


def _misused(fault: typer.TyperException) -> int:
    said = fault.format_message().strip()
    if "\n" in said:  # a command without its arguments is answered by its help
        sys.stdout.write(f"{said}\n")
        return USAGE
    ctx: Any = getattr(fault, "ctx", None)
    path = ctx.command_path if ctx is not None else "foldline"
    remark(said if said.endswith("?") else f"{said.rstrip('.')}; `{path} --help` tells more")
    return USAGE


def _unread() -> int:
    """Who reads us has stopped: so do we, and Python writes no complaint at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
