"""`/model`, `/remember`, `/retry`, `/new`, `/open`, `/help` and `/quit`: how it goes on.

Knows how a person changes what comes next. Refuses to know what a model does.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from foldline.apps.chat.commands.table import ChatCommand, Misused, number
from foldline.apps.cli.output import columns, paint, wrapped
from foldline.core.parts import sound
from foldline.draw.text import clean, fit
from foldline.session.model_facts import known

if TYPE_CHECKING:
    from foldline.apps.chat.conversation import Talk


async def _model(talk: "Talk", given: str) -> None:
    session, drawn = talk.session, talk.picture()
    if not given:
        told = f"{drawn.model}, window {drawn.window:,}; /model NAME [WINDOW] takes another"
        talk.say(*wrapped(told))
        return
    name, _, size = sound(given).partition(" ")
    window = number(size, "window") if size.strip() else None
    facts = known(name, window=window, reserve=None, policy=session.live.facts.policy)
    limits = facts.limits
    source = "assumed" if limits.source == "default" else limits.source
    told = f"{clean(name)}: a window of {limits.window:,} ({source}); {drawn.total:,} tokens stand"
    if drawn.total > limits.window - limits.reserve:
        told += ", too many: what is old is folded first"
    else:
        told += " and fit"
    new = talk.seat.models(name)  # refused before anybody is asked, where it is another provider's
    talk.say(*wrapped(told))
    if not await talk.agreed("Switch? What the provider had cached is written anew. [y/N]"):
        await new.close()
        talk.say(paint("nothing was changed", "dim"))
        return
    try:
        await session.switch(name, window=window)
    except BaseException:
        await new.close()
        raise
    talk.seat.agent.model = new  # the one before may still tell narratives: it ends with the talk
    talk.moved()
    talk.say(*wrapped(f"{clean(name)} answers from here on"))
    talk.usage()


async def _remember(talk: "Talk", given: str) -> None:
    if talk.seat.instructions is None:
        raise Misused("there is no memory file here; write it into AGENTS.md")
    if not given:
        raise Misused("say what: /remember The tests need Python 3.12")
    where = talk.seat.instructions.remember(sound(given))
    talk.say(*wrapped(f"kept in {where}"))


async def _retry(talk: "Talk", _: str) -> None:
    await talk.go_on()


async def _new(talk: "Talk", given: str) -> None:
    talk.another(sound(given))


async def _open(talk: "Talk", given: str) -> None:
    if not given:
        raise Misused("say which: /open NAME; `foldline sessions` lists them")
    talk.another(sound(given), known=True)


async def _help(talk: "Talk", _: str) -> None:
    from foldline.apps.chat.commands import TABLE  # noqa: PLC0415 - the table names this module

    wide = max(len(one.usage) for one in TABLE)
    if columns() < wide + 20:
        wide = 18
    for one in TABLE:
        line = f"  {one.usage:{wide}}  {one.help}"
        talk.say(fit(line, columns()))
    talk.say(
        "",
        *(
            paint(fit(f"  {line}", columns()), "dim")
            for line in (
                "Enter sends · Alt-Enter, Ctrl-J or \\ at the end begins a new line",
                "Ctrl-C stops an answer, clears the line, and twice leaves · Ctrl-D leaves",
                "what you enter while an answer comes is sent after it",
                "//text says something that begins with a slash",
            )
        ),
    )


async def _quit(talk: "Talk", _: str) -> None:
    talk.face.leave()


def _models(_: "Talk") -> Iterable[tuple[str, str]]:
    from foldline.models import catalog  # noqa: PLC0415 - read when it is asked for

    return ((name, "") for name in catalog.names())


def _sessions(talk: "Talk") -> Iterable[tuple[str, str]]:
    return ((name, "a session") for name in talk.names)


COMMANDS = (
    ChatCommand(
        name="model",
        arguments="[NAME [WINDOW]]",
        help="go on with another model",
        work=_model,
        choices=_models,
    ),
    ChatCommand(name="retry", help="ask again for an answer that did not come", work=_retry),
    ChatCommand(
        name="remember", arguments="TEXT", help="keep it for all later sessions", work=_remember
    ),
    ChatCommand(name="new", arguments="[NAME]", help="begin another session", work=_new),
    ChatCommand(
        name="open",
        arguments="NAME",
        help="go on with another session",
        work=_open,
        choices=_sessions,
    ),
    ChatCommand(name="help", help="this", work=_help, also=("?",)),
    ChatCommand(name="quit", help="leave; the session stays", work=_quit, also=("exit", "q")),
)
