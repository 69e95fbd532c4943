"""`foldline chat`: its options, and the choice between a terminal, a plain one and one message.

`build_agent` makes the agent, `apps.chat` is the terminal.
"""

import asyncio
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from foldline.apps.chat import startup
from foldline.apps.cli.build_agent import Wish
from foldline.apps.cli.config import ProfileOption, SetOption, parse_flags
from foldline.apps.cli.context import (
    JsonOption,
    StoreOption,
    TenantOption,
    complete_session_name,
    make_desk,
)
from foldline.core.policy import named as preset
from foldline.errors import BadInput

Start = Literal["auto", "ask", "manual"]
Form = Literal["text", "json", "stream-json"]
Approve = Literal["ask", "edits", "all", "none"]


async def _run_plain_chat(wish: Wish) -> int:
    from foldline.apps.chat.plain import Plain  # noqa: PLC0415 - for terminals that can do little

    face = Plain()
    try:
        return await wish.run_chat(face)
    finally:
        face.close()


def _start_chat(wish: Wish, message: str | None, form: Form, files: Sequence[Path]) -> Wish | int:
    if startup.waiting.get() is not None:
        return wish  # `startup` has the input line open already and runs the chat itself
    if message is not None or form != "text" or files or not _has_terminal():
        from foldline.apps.cli.one_message import OneMessage  # noqa: PLC0415 - `--help` needs none

        return OneMessage(words=message, form=form, files=files).send_message(wish)
    if find_spec("prompt_toolkit") is None:
        raise BadInput(
            "a terminal to talk in needs the extra `chat`: pip install 'foldline[chat]'; "
            "without it one message goes by -p TEXT"
        )
    return (
        startup.run_with_line(wish.run_chat)
        if startup.has_capable_terminal()
        else asyncio.run(_run_plain_chat(wish))
    )


def _has_terminal() -> bool:
    """Whether a person writes on stdin; it may be closed."""
    return sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]


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
        typer.Argument(
            metavar="NAME",
            help="The session, by its whole name: where it was left, or a new one.",
            autocompletion=complete_session_name,
        ),
    ] = None,
    *,
    go_on: Annotated[
        bool,
        typer.Option(
            "--continue", "-c", help="Go on with NAME, or what begins so, or with the newest."
        ),
    ] = False,
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            "-m",
            "--print",
            "-p",
            metavar="TEXT",
            help="One message, its answer, and out. A pipe goes along with it.",
        ),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="A file that goes along with -p."),
    ] = None,
    output: Annotated[
        Form | None,
        typer.Option(help="With -p: the answer, one JSON document, or a line for each event."),
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
    json_: JsonOption = False,
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
        desk=make_desk(store=store_, tenant=tenant_, json=json_, under=ctx.obj),
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
    form: Form = output or ("json" if wish.desk.json else "text")
    return _start_chat(wish, message, form, file or ())
