"""The `foldline` command. Every command is a few calls of the session API.

    agent_sessions   the sessions that coding agents keep on this machine
    app              the table of commands, the help, completion, the run of a command line
    bot              `bot`: the agent in Telegram
    build_agent      from options and settings to an agent with its session, model and tools
    catalogue        `models`: windows and prices
    chat             `chat`: talk with a model in a terminal
    chat_records     what `chat --output` prints: the records and their fields
    config           `config show`, `config path`, `config check`
    context          the options that all commands share, the store, sessions by name
    doctor           `doctor`: checks of the installation and of a store file
    doctor_postgres  `doctor postgresql://…`: checks of a server and our schema
    exit_codes       exit codes, and the code of each error
    export           `export` and `erase`
    find_sessions    the sessions that `lab` works on: files, folders, names
    first_run        the questions of a first chat: who answers, key, model
    fold             `fold`, `undo` and `pin`
    hook             `hook claude`: warns in Claude Code of an expired cache
    import_          `import`: session files into the store
    keys             `keys` and `share`: who may ask a gateway, and who reads a session
    lab              `lab compare` and `lab cost`
    lab_model        the model that `lab` asks: client, window, prices, consent
    lab_quality      `lab quality`: what a model remembers
    lab_tasks        `lab tasks`: coding tasks worked by our agent
    mcp              `mcp`: a session's past for an agent host
    migrate          `migrate`: PostgreSQL's tables and rights, brought to this release
    one_message      one message by `-p`: pipes, three forms of output, what nobody answered
    output           tables, wrapped lines, colours, sizes and times
    plan_transcript  the fold of another agent's transcript, for `hook`
    run_agent        `run`: a coding agent behind a gateway of its own
    run_worker       `worker`: a process that makes queued folds
    saved_keys       keys that a first run has saved
    schedule         `schedule`: entries that speak into sessions at their times
    serve            `serve`: the gateway's process
    serve_workers    `serve --workers`: several processes at one port
    show             `sessions`, `show` and `context`
    show_history     `history` and `search`
    show_plan        `plan`: what a policy would do now
    show_usage       `usage`: what calls through a gateway took
    ui               `ui`: the pages, in a browser of this machine

Without the extra `[cli]` the command says what to install.
"""

import os
import sys
from importlib.util import find_spec

_USAGE = 2


def main() -> None:
    """Run the `foldline` command."""
    _open_closed_streams()
    if sys.argv[1:] == ["--version"]:
        from foldline import __version__  # noqa: PLC0415 - all that this needs

        print(f"foldline {__version__}")  # noqa: T201
        return
    if sys.argv[1:] == ["hook", "claude"]:
        from foldline.apps.cli.hook import run_claude_hook  # noqa: PLC0415 - each prompt waits for it

        sys.exit(run_claude_hook(sys.stdin.buffer))
    missing = next((name for name in ("typer", "rich") if find_spec(name) is None), None)
    if missing is not None:
        print(  # noqa: T201
            f"foldline: the command line needs {missing!r}, which is not installed; "
            "pip install 'foldline[cli]'",
            file=sys.stderr,
        )
        sys.exit(_USAGE)
    from foldline.apps.chat import startup  # noqa: PLC0415

    _keep_log_off_terminal()
    if (
        startup.is_interactive_chat(sys.argv[1:])
        and (code := startup.run_chat_command(sys.argv[1:])) is not None
    ):
        sys.exit(code)
    from foldline.apps.cli.app import run_command  # noqa: PLC0415

    sys.exit(run_command(sys.argv[1:]))


def _open_closed_streams() -> None:
    """Open what a shell has closed (`>&-`) as /dev/null: a file of ours must not take its place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)  # noqa: FBT003 - takes no keyword
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def is_debugging() -> bool:
    """Whether FOLDLINE_DEBUG asks for tracebacks and the log; 0, no, off and false do not."""
    said = os.environ.get("FOLDLINE_DEBUG", "").strip().lower()
    return said not in ("", "0", "no", "off", "false")


def _keep_log_off_terminal() -> None:
    """Keep warnings of the library off the screen, where Python prints them if nobody else does.

    `serve` has a handler of its own. With FOLDLINE_DEBUG they are printed.
    """
    import logging  # noqa: PLC0415 - not for `--version`

    if not is_debugging():
        logging.getLogger("foldline").addHandler(logging.NullHandler())
