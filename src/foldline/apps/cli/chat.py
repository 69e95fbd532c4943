"""`chat`: talk with a model in a terminal, for as long as you like.

Knows the options, and which of the three ways to talk there is: a terminal, a plain one, or one
message. Refuses to know how options become an agent (`build_agent`), and how it looks
(`apps.chat`).
"""

import asyncio
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from foldline.apps.chat import door
from foldline.apps.cli.build_agent import Wish, seated
from foldline.apps.cli.config import ProfileOption, SetOption, flags
from foldline.apps.cli.context import StoreOption, TenantOption, desk
from foldline.apps.cli.exit_codes import DONE
from foldline.apps.cli.output import remark
from foldline.core.parts import sound
from foldline.core.policy import named as preset
from foldline.errors import BadInput

if TYPE_CHECKING:
    from foldline.agent.events import Moment

Start = Literal["auto", "ask", "manual"]
Approve = Literal["ask", "edits", "all", "none"]


async def _once(wish: Wish, message: str) -> int:
    """One message, its answer on the standard output, and out."""
    from foldline.agent.events import Speaking  # noqa: PLC0415 - as above
    from foldline.apps.chat import bar  # noqa: PLC0415
    from foldline.apps.chat.safe import Safe  # noqa: PLC0415

    wish = await wish.settled()
    flow, name = Safe(), await wish.which()

    def hear(moment: "Moment") -> None:
        if isinstance(moment, Speaking):
            sys.stdout.write(flow.feed(moment.words))
            sys.stdout.flush()

    async with seated(wish, name, sure=True) as seat:
        for note in seat.notes:
            remark(note)
        seat.agent.hooks.append(hear)
        ended = await seat.agent.turn(sound(message))
        sys.stdout.write("\n")
        if ended.how != "answered":
            remark(ended.words)
        if sys.stderr.isatty():
            used = seat.agent.session.report
            remark(f"{name}: {bar.after(used.total, used.window)[0]}")
    return DONE


async def _plain(wish: Wish) -> int:
    from foldline.apps.chat.plain import Plain  # noqa: PLC0415 - for terminals that can do little

    face = Plain()
    try:
        return await wish.talk(face)
    finally:
        face.close()


def _begun(wish: Wish, message: str | None) -> Wish | int:
    """Talk, in the way that there is."""
    if door.waiting.get() is not None:
        return wish  # the line is there already, and talks itself
    if message is None and not sys.stdin.isatty():
        message = str(sys.stdin.read())
    if message is not None:
        if not message.strip():
            raise BadInput("nothing was said: write -m TEXT, or give a text on the standard input")
        return asyncio.run(_once(wish, message))
    if find_spec("prompt_toolkit") is None:
        raise BadInput(
            "a terminal to talk in needs the extra `chat`: pip install 'foldline[chat]'; "
            "without it one message goes by -m TEXT"
        )
    return door.sit(wish.talk) if door.able() else asyncio.run(_plain(wish))


def chat(  # noqa: PLR0913 - one for each option
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The session: new, or where it was left."),
    ] = None,
    *,
    go_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with NAME, or with the newest.")
    ] = False,
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="TEXT", help="One message, its answer, and out."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Who answers. As it was, if not said.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="A server that speaks as OpenAI does."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=1, help="What the model takes in all.")
    ] = None,
    reserve: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=1, help="What an answer may take.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="POLICY", help="When and how to fold: steady, …")
    ] = None,
    start: Annotated[
        Start | None, typer.Option(help="Who starts a fold that is due: nobody, you, /compact.")
    ] = None,
    summarizer: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Have this model tell what is folded.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="How often in one turn tools may be run.")
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools/--no-tools", help="Whether it may read, write and run.")
    ] = True,
    approve: Annotated[
        Approve | None, typer.Option(help="What is done unasked: nothing, edits here, all, none.")
    ] = None,
    profile: ProfileOption = None,
    set_: SetOption = None,
    store_: StoreOption = None,
    tenant_: TenantOption = None,
) -> Wish | int:
    """Talk with a model, for as long as you like.

    Commands begin with a slash: /help lists them. The session is kept; --continue goes on.
    """
    said = {
        "model": model,
        "model.base_url": base_url,
        "model.max_input_tokens": window,
        "model.max_output_tokens": reserve,
        "policy": policy,
        "start": start,
        "summarizer": summarizer,
        "session.max_tool_iterations": rounds,
        "approval.mode": approve,
    }
    wish = Wish(
        desk=desk(store=store_, tenant=tenant_, under=ctx.obj),
        name=name,
        go_on=go_on,
        flags={**{key: one for key, one in said.items() if one is not None}, **flags(set_)},
        profile=profile,
        tools=tools,
    )
    if policy is not None:
        preset(policy)  # a wrong name is told at once
    return _begun(wish, message)
