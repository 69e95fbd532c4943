"""The way in: the line is there before the rest of foldline is imported.

    foldline chat …  →  a line to write on, in a third of a second
                     →  behind it: options read, session opened, client made

What is entered meanwhile waits its turn. Knows that importing takes longer than a person wants to
wait. Refuses to read options: where they are wrong, the usual way says so.
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
    from foldline.apps.chat.line import InputLine

T = TypeVar("T")
COMMAND = "chat"
_STOPPED = 130
_NOT_HERE = ("-h", "--help", "--message")
waiting: ContextVar["InputLine | None"] = ContextVar("waiting", default=None)
"""The line that is there already, where there is one."""


def opens(arguments: Sequence[str]) -> bool:
    """Whether a person at a terminal wants to talk, and needs no more than the line for now."""
    asked = any(one.startswith(("--message=", "-m")) or one in _NOT_HERE for one in arguments)
    return [*arguments[:1]] == [COMMAND] and not asked and able()


def able() -> bool:
    """Whether somebody sits at a terminal that can do what the line needs."""
    seen = sys.stdin.isatty() and sys.stdout.isatty()
    return seen and os.environ.get("TERM", "dumb") != "dumb"


def history() -> Path:
    """Where what was entered is kept: in the user's data folder."""
    folder = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(folder) / "foldline" / "chat_history"


def run(arguments: Sequence[str]) -> int | None:
    """Talk; the exit code, or None where the usual way is to be gone."""

    async def begun(line: "InputLine") -> int | None:
        waiting.set(line)
        await asyncio.sleep(0.01)  # drawn first
        wish = await asyncio.to_thread(_read, arguments)
        return None if wish is None else await wish.talk(line)

    try:
        return sit(begun)
    except ImportError:
        return None
    except KeyboardInterrupt:
        return _STOPPED
    except Exception as fault:  # noqa: BLE001 - told in a line, as by every other command
        from foldline.apps.cli.app import failed  # noqa: PLC0415 - it is imported by now

        return failed(fault)


def sit(talk: "Callable[[InputLine], Coroutine[Any, Any, T]]") -> "T | int":
    """A line to write on, for as long as somebody talks."""
    with _typed_ahead():
        from foldline.apps.chat.line import InputLine  # noqa: PLC0415 - most of what starting takes

        return asyncio.run(_sat(InputLine(history=history()), talk))


async def _sat(
    line: "InputLine", talk: "Callable[[InputLine], Coroutine[Any, Any, T]]"
) -> "T | int":
    line.bar = lambda _: [("ansibrightblack", "  opening …")]
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(ending, line.leave)
    shown = asyncio.create_task(line.run())
    while not line.app.is_running and not shown.done():  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0)
    work = asyncio.create_task(talk(line))
    line.stop = work.cancel  # until a talk says what there is to stop
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
    """What is typed before the line is there comes to it as it was typed, and is not shown yet."""
    import termios  # noqa: PLC0415 - where there is a terminal

    stdin = sys.stdin.fileno()
    before, now = termios.tcgetattr(stdin), termios.tcgetattr(stdin)
    now[0] &= ~termios.ICRNL
    now[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(stdin, termios.TCSANOW, now)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _read(arguments: Sequence[str]) -> Any:
    """What the command line wishes; None where it is wrong."""
    try:
        from foldline.apps.cli.app import app  # noqa: PLC0415 - it takes a while, and the line is there

        wish = app(arguments)([*arguments], prog_name="foldline", standalone_mode=False)
    except Exception:  # noqa: BLE001 - the usual way meets it again, and tells it
        return None
    for name in (
        "apps.chat.conversation",
        "session.open",
    ):  # here, where the line does not wait for them
        import_module(f"foldline.{name}")
    return wish
