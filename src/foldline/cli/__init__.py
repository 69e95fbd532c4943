"""The `foldline` command: a person's way to look at sessions and to steer them.

    app      the command line itself, errors, exit codes      desk    what each command works with
    taking   import                                           looking sessions, show, context
    past     history, search; over_time draws it              planning plan
    deciding fold, undo, pin                                  keeping export, erase
    doctor   doctor; doctor_postgres, doctor_schema, checks   catalogue models
    worker   worker                                           mcp     mcp
    chat     chat; seating makes its agent, repl/ shows it    config  config show, path, check
    serve    serve, keys add                                  bot     bot
    schedule schedule add, list, run, …
    lab      lab compare; gather its sessions, spread its work  lab_cost
    place    which store, which session                       files   session files on a disk
    reaching whether a server is there
    output   tables, colours, strangers' words                codes   how every error ends

Knows how sessions are shown and asked for in a terminal. Refuses to decide: every command is a few
calls of the session API. Without the extra `[cli]` it says which one to install.
"""

import sys
from importlib.util import find_spec

_USAGE = 2


def main() -> None:
    """The entry point of the `foldline` command."""
    if sys.argv[1:] == ["--version"]:
        from foldline import __version__  # noqa: PLC0415 - all that this needs

        print(f"foldline {__version__}")  # noqa: T201
        return
    missing = next((name for name in ("typer", "rich") if find_spec(name) is None), None)
    if missing is not None:
        print(  # noqa: T201
            f"foldline: the command line needs {missing!r}, which is not installed; "
            "pip install 'foldline[cli]'",
            file=sys.stderr,
        )
        sys.exit(_USAGE)
    from foldline.cli.repl import door  # noqa: PLC0415

    if door.opens(sys.argv[1:]) and (code := door.run(sys.argv[1:])) is not None:
        sys.exit(code)
    from foldline.cli.app import run  # noqa: PLC0415

    sys.exit(run(sys.argv[1:]))
