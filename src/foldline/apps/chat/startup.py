"""Start the chat: an input line first, while the rest of foldline loads.

    foldline chat …  →  a line to write on, in a third of a second
                     →  behind it: options parsed, session opened, client made

What is entered meanwhile is queued. Wrong options are left to the usual command line, which
explains them. Imports little, so that the line is there at once.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from foldline.apps.chat.input_line import InputLine


T = TypeVar("T")
COMMAND = "chat"
_STOPPED = 130
_NOT_HERE = ("-h", "--help", "--message", "--print", "--file", "--output", "--json")
waiting: ContextVar["InputLine | None"] = ContextVar("waiting", default=None)
"""The input line that is open already, if any."""


def is_interactive_chat(arguments: Sequence[str]) -> bool:
    """Whether these arguments start a chat in a capable terminal."""
    asked = any(
        one.partition("=")[0] in _NOT_HERE or one[:2] in ("-m", "-p", "-f") for one in arguments
    )
    return [*arguments[:1]] == [COMMAND] and not asked and has_capable_terminal()


def has_capable_terminal() -> bool:
    """Whether input and output are a terminal that the input line can use."""
    streams: tuple[Any, ...] = (sys.stdin, sys.stdout)  # None if closed
    return (
        all(one is not None and one.isatty() for one in streams)
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def choose_history_path() -> Path:
    """Return the path of the input history, in the user's data folder."""
    folder = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(folder) / "foldline" / "chat_history"


def run_chat_command(arguments: Sequence[str]) -> int | None:
    """Chat; return the exit code, or None to go on with the usual command line."""

    async def start_talk(line: "InputLine") -> int | None:
        waiting.set(line)
        await asyncio.sleep(0.01)  # lets the line be drawn first
        wish = await asyncio.to_thread(_parse_arguments, arguments)
        return None if wish is None else await wish.run_chat(line)

    try:
        return run_with_line(start_talk)
    except ImportError:
        return None
    except KeyboardInterrupt:
        return _STOPPED
    except Exception as fault:  # noqa: BLE001 - printed in one line, as by every command
        from foldline.apps.cli.app import print_error  # noqa: PLC0415 - imported by now

        return print_error(fault)


def run_with_line(talk: "Callable[[InputLine], Coroutine[Any, Any, T]]") -> "T | int":
    """Run a talk with an input line."""
    with _typed_ahead():
        from foldline.apps.chat.input_line import InputLine  # noqa: PLC0415 - the slowest import

        return asyncio.run(_run_line(InputLine(history=choose_history_path()), talk))


async def _run_line(
    line: "InputLine", talk: "Callable[[InputLine], Coroutine[Any, Any, T]]"
) -> "T | int":
    line.bar = lambda _: [("ansibrightblack", "  opening …")]
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(ending, line.leave)
    shown = asyncio.create_task(line.run())
    while not line.app.is_running and not shown.done():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)
    work = asyncio.create_task(talk(line))
    line.stop = work.cancel  # until the talk sets its own
    done, _ = await asyncio.wait([work, shown], return_when=asyncio.FIRST_COMPLETED)
    if work in done:
        line.close()
    else:
        work.cancel()  # the terminal is gone
    with suppress(asyncio.CancelledError, EOFError):
        await shown
    with suppress(asyncio.CancelledError):
        return await work
    return 0


@contextmanager
def _typed_ahead() -> Generator[None]:
    """Keep what is typed before the line is there: for the line, unchanged and without echo."""
    import termios  # noqa: PLC0415 - not on every system

    stdin = sys.stdin.fileno()
    before, now = termios.tcgetattr(stdin), termios.tcgetattr(stdin)
    now[0] &= ~termios.ICRNL
    now[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(stdin, termios.TCSANOW, now)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _parse_arguments(arguments: Sequence[str]) -> Any:
    """Return the wish of the command line; None if it is wrong."""
    try:
        from foldline.apps.cli.app import build_app  # noqa: PLC0415 - slow; the line is there

        wish = build_app(arguments)([*arguments], prog_name="foldline", standalone_mode=False)
    except Exception:  # noqa: BLE001 - the usual command line meets it again, and explains it
        return None
    for name in ("apps.chat.chat_loop", "session.open"):  # in this thread, so the line stays live
        import_module(f"foldline.{name}")
    return wish
