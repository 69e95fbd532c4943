"""The command line: its table of commands, its help, and the exit code of every run.

Only the modules of the commands that are named on the line are imported. No error is shown as a
traceback, unless FOLDLINE_DEBUG is set.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from foldline import __version__
from foldline.apps.cli import is_debugging
from foldline.apps.cli.context import JsonOption, StoreOption, TenantOption, make_desk
from foldline.apps.cli.exit_codes import DONE, MEANINGS, STOPPED, USAGE, explain_error
from foldline.apps.cli.output import print_remark

_HELP = """Keep LLM conversations inside the window, and see what the model saw.

Begin with `foldline import ~/.claude/projects`, then `foldline sessions` and
`foldline context NAME`. The beginning of a name is enough, but not for
`foldline chat NAME`: that begins a new session."""
_CODES = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in MEANINGS.items()) + "."
_PANELS = {
    "Everyday commands": {
        "run": "run_agent:run",
        "chat": "chat:chat",
        "import": "import_:take",
        "sessions": "show:sessions",
        "ui": "ui:ui",
        "context": "show:context",
        "show": "show:show",
        "history": "show_history:history",
        "search": "show_history:search",
        "plan": "show_plan:plan",
        "fold": "fold:fold",
        "undo": "fold:undo",
    },
    "Keep and erase": {
        "pin": "fold:pin",
        "exclude": "fold:exclude",
        "export": "export:export",
        "erase": "export:erase",
    },
    "Set up and check": {
        "models": "catalogue:models",
        "completion": "app:print_completion",
        "doctor": "doctor:doctor",
        "config show": "config:show",
        "config path": "config:path",
        "config check": "config:check",
    },
    "Servers and workers": {
        "worker": "run_worker:worker",
        "mcp": "mcp:mcp",
        "hook claude": "hook:claude",
        "serve": "serve:serve",
        "bot": "bot:bot",
        "keys add": "keys:add_key",
        "keys list": "keys:list_keys",
        "keys rotate": "keys:rotate_key",
        "keys revoke": "keys:revoke_key",
        "keys import": "keys:import_keys",
        "share": "keys:share",
        "usage": "show_usage:usage",
        "migrate": "migrate:migrate",
        "schedule add": "schedule:add",
        "schedule list": "schedule:listed",
        "schedule next": "schedule:upcoming",
        "schedule pause": "schedule:pause",
        "schedule resume": "schedule:resume",
        "schedule remove": "schedule:remove",
        "schedule fire": "schedule:fire",
        "schedule run": "schedule:run",
    },
    "Measure": {
        "lab compare": "lab:compare",
        "lab cost": "lab:cost",
        "lab quality": "lab_quality:quality",
        "lab tasks": "lab_tasks:tasks",
    },
}
"""The headings of the help; below each, commands and their `module:function`."""
_SENTENCE = 1_000  # letters: no first sentence is longer, and none is cut
_GROUPS = {
    "config": "The settings: which are in force, who says so, and what is wrong with them.",
    "hook": "Hooks of coding agents.",
    "keys": "Keys of the gateway's own.",
    "schedule": "Entries that speak into sessions at their times, as `cron`.",
    "lab": "What sessions cost and would have kept, and what a model remembers.",
}


class _PanelGroup(TyperGroup):
    """Lists commands below the headings of their panels; typer itself does so only in boxes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            panels.setdefault(command.rich_help_panel or "Commands", []).append((name, command))
        wide = max(map(len, self.commands), default=0)
        for title, commands in panels.items():
            with formatter.section(title):
                formatter.write_dl(
                    (name.ljust(wide), command.get_short_help_str(_SENTENCE))
                    for name, command in commands
                )


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Build the app with the commands that are named in `arguments`; with all, if none is."""
    steps = [
        (panel, *name.partition(" ")[::2], step)
        for panel, commands in _PANELS.items()
        for name, step in commands.items()
    ]
    wanted = {*arguments} & {first for _, first, _, _ in steps}
    if not wanted or {*arguments} & {"-h", "--help"}:
        wanted = {first for _, first, _, _ in steps}
    app = _make_typer(_HELP)
    app.callback()(_apply_shared_options)
    groups = {name: _make_typer(text) for name, text in _GROUPS.items()}
    for panel, first, second, step in steps:
        if first in wanted:
            module, _, function = step.partition(":")
            work = getattr(import_module(f"foldline.apps.cli.{module}"), function)
            if second:
                groups[first].command(second)(work)
                groups[first].info.rich_help_panel = panel
            else:
                settings = getattr(import_module(work.__module__), "context_settings", None)
                app.command(first, rich_help_panel=panel, context_settings=settings)(work)
    for name, group in groups.items():
        if group.registered_commands:
            group.callback()(_keep_group)
            app.add_typer(group, name=name)
    return app


def _make_typer(text: str) -> typer.Typer:
    return typer.Typer(
        cls=_PanelGroup,
        help=text,
        epilog=_CODES,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    )


def _keep_group() -> None:
    """Do nothing: without a callback typer turns a group of one command into that command."""


def _print_version(asked: bool) -> None:  # noqa: FBT001 - the shape of an option's callback
    if asked:
        sys.stdout.write(f"foldline {__version__}\n")
        raise typer.Exit


def _apply_shared_options(
    ctx: typer.Context,
    *,
    store_: StoreOption = None,
    tenant_: TenantOption = None,
    json_: JsonOption = False,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Say which this is."
        ),
    ] = False,
) -> None:
    """Keep the options that stand before the command, for the command."""
    ctx.obj = make_desk(store=store_, tenant=tenant_, json=json_)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    if "_FOLDLINE_COMPLETE" in os.environ:
        _prepare_completion()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a character that the terminal lacks is shown as ?
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = build_app(arguments)(list(arguments), prog_name="foldline", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _discard_output()
    except (KeyboardInterrupt, typer.Abort):
        print_remark("interrupted")
        return STOPPED
    except typer.TyperException as fault:
        return _print_usage_error(fault)
    except Exception as fault:  # noqa: BLE001 - no error is shown as a traceback
        return print_error(fault)
    return code if isinstance(code, int) else DONE


def _prepare_completion() -> None:
    """Let typer answer the shell that asks how a line may go on."""
    completion: Any = import_module("typer.completion")
    completion.completion_init()


def print_completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(help="The shell that reads it.")
    ],
) -> None:
    """Print what makes a shell complete commands and sessions.

    bash: eval "$(foldline completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc;
    fish: foldline completion fish > ~/.config/fish/completions/foldline.fish
    """
    scripts = import_module("typer.completion")
    script = scripts.get_completion_script(
        prog_name="foldline", complete_var="_FOLDLINE_COMPLETE", shell=shell
    )
    sys.stdout.write(f"{script}\n")


def print_error(fault: Exception) -> int:
    """Print an error in one line; return its exit code."""
    if is_debugging():
        raise fault
    number, line = explain_error(fault)
    print_remark(line)
    return number


def _print_usage_error(fault: typer.TyperException) -> int:
    text = fault.format_message().strip()
    if "\n" in text:  # the help, for a command without its arguments
        sys.stdout.write(f"{text}\n")
        return USAGE
    ctx: Any = getattr(fault, "ctx", None)
    path = ctx.command_path if ctx is not None else "foldline"
    print_remark(text if text.endswith("?") else f"{text.rstrip('.')}; `{path} --help` tells more")
    return USAGE


def _discard_output() -> int:
    """Stop quietly when the reader of a pipe has: Python would complain at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
