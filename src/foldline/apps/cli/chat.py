"""`foldline chat`: its options, and the choice between a terminal, a plain one and one message.

`build_agent` makes the agent, `apps.chat` is the terminal.
"""

import asyncio
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from foldline.apps.chat import startup
from foldline.apps.cli.build_agent import Wish, open_agent
from foldline.apps.cli.config import ProfileOption, SetOption, parse_flags
from foldline.apps.cli.context import StoreOption, TenantOption, make_desk
from foldline.apps.cli.exit_codes import DONE
from foldline.apps.cli.output import print_remark
from foldline.core.parts import replace_surrogates
from foldline.core.policy import named as preset
from foldline.errors import BadInput

if TYPE_CHECKING:
    from foldline.agent.events import Moment

Start = Literal["auto", "ask", "manual"]
Approve = Literal["ask", "edits", "all", "none"]


async def _send_one_message(wish: Wish, message: str) -> int:
    """Send one message and write its answer to stdout."""
    from foldline.agent.events import Speaking  # noqa: PLC0415 - `chat --help` needs none of it
    from foldline.apps.chat import status_bar  # noqa: PLC0415
    from foldline.apps.chat.safe import Safe  # noqa: PLC0415
    from foldline.core.cold_cache import render_cold_call  # noqa: PLC0415
    from foldline.session.cold_call import preview_cold_call  # noqa: PLC0415

    wish = await wish.resolve_trust()
    flow, name = Safe(), await wish.choose_session_name()

    def print_words(moment: "Moment") -> None:
        if isinstance(moment, Speaking):
            sys.stdout.write(flow.feed(moment.words))
            sys.stdout.flush()

    async with open_agent(wish, name, sure=True) as seat:
        for note in seat.notes:
            print_remark(note)
        if sys.stderr.isatty() and (
            cold := await preview_cold_call(seat.agent.session.live, message)
        ):
            print_remark(render_cold_call(cold, f"`foldline fold {name}` first"))
        seat.agent.hooks.append(print_words)
        ended = await seat.agent.turn(replace_surrogates(message))
        sys.stdout.write("\n")
        if ended.how != "answered":
            print_remark(ended.words)
        if sys.stderr.isatty():
            used = seat.agent.session.report
            print_remark(f"{name}: {status_bar.render_usage_line(used.total, used.window)[0]}")
    return DONE


async def _run_plain_chat(wish: Wish) -> int:
    from foldline.apps.chat.plain import Plain  # noqa: PLC0415 - for terminals that can do little

    face = Plain()
    try:
        return await wish.run_chat(face)
    finally:
        face.close()


def _start_chat(wish: Wish, message: str | None) -> Wish | int:
    if startup.waiting.get() is not None:
        return wish  # `startup` has the input line open already and runs the chat itself
    if message is None and not sys.stdin.isatty():
        message = str(sys.stdin.read())
    if message is not None:
        if not message.strip():
            raise BadInput("nothing was said: write -m TEXT, or give a text on the standard input")
        return asyncio.run(_send_one_message(wish, message))
    if find_spec("prompt_toolkit") is None:
        raise BadInput(
            "a terminal to talk in needs the extra `chat`: pip install 'foldline[chat]'; "
            "without it one message goes by -m TEXT"
        )
    return (
        startup.run_with_line(wish.run_chat)
        if startup.has_capable_terminal()
        else asyncio.run(_run_plain_chat(wish))
    )


def _parse_parts(carry: str | None, parts: str | None) -> tuple[str, ...] | None:
    if parts is None:
        return None
    if carry is None:
        raise BadInput("--parts goes with --carry SESSION, the session that has them")
    from foldline.session.carry import read_parts  # noqa: PLC0415 - few sessions carry on

    return read_parts(parts)


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
    carry: Annotated[
        str | None,
        typer.Option(metavar="SESSION", help="Begin with the record of this earlier session."),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="PARTS", help="What of it: summary,pins,files,facts. All, if not said."
        ),
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
        desk=make_desk(store=store_, tenant=tenant_, under=ctx.obj),
        name=name,
        go_on=go_on,
        flags={**{key: one for key, one in said.items() if one is not None}, **parse_flags(set_)},
        profile=profile,
        tools=tools,
        carry=carry,
        parts=_parse_parts(carry, parts),
    )
    if policy is not None:
        preset(policy)  # raises for an unknown name, before anything is opened
    return _start_chat(wish, message)
