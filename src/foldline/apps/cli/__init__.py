"""The `foldline` command: a person's way to look at sessions and to steer them.

    app              The command line: its commands by name, its help, and how every run of it ends
    bot              `bot`: the agent in Telegram, for as long as it is let run
    build_agent      From a command line to an agent at work: settings, a session, a model, tools
    catalogue        `foldline models`: windows and prices, and what a model's name is taken for
    chat             `chat`: talk with a model in a terminal, for as long as you like
    checks           A thing that was looked at, and how it is told
    config           `foldline config`
    context          What each command works with
    doctor           `foldline doctor`
    doctor_postgres  `foldline doctor postgresql://…`
    doctor_schema    What is well with a schema of PostgreSQL
    exit_codes       How the command ends: its exit codes, and what each error means to a script
    export           `export` and `erase`: a session out of the store, and a session gone from it
    files            Session files on a disk
    find_sessions    The sessions that a person names for the lab
    fold             `fold`, `undo` and `pin`
    history          `history` and `search`
    import_          `foldline import`: other agents' session files, and our own, into the store
    lab              `foldline lab compare`
    lab_cost         `foldline lab cost`
    mcp              `foldline mcp`
    output           What a terminal is given
    over_time        `history --over-time`: a session from its first call to its last, drawn
    parallel         Work for many hands: in this process, on the machine's cores, or on a cluster
    plan             `plan`: what a policy would do about a session now, why, and what it would lose
    reachable        Whether a server of one's own is there at all, and what to say where it is not
    schedule         `foldline schedule`
    serve            `foldline serve`: the gateway's process; `foldline keys add`: a key for it
    show             `sessions`, `show` and `context`
    store_location   Where sessions are
    worker           `foldline worker`

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
    from foldline.apps.chat import door  # noqa: PLC0415

    if door.opens(sys.argv[1:]) and (code := door.run(sys.argv[1:])) is not None:
        sys.exit(code)
    from foldline.apps.cli.app import run  # noqa: PLC0415

    sys.exit(run(sys.argv[1:]))
