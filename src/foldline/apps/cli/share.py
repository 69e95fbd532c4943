"""`foldline share`: who may read a session beside its owner, through a gateway."""

from typing import Annotated

import typer

from foldline.apps.cli.context import Desk, make_command, resolve_session_name
from foldline.apps.cli.output import clean_line
from foldline.apps.cli.show import NameArgument
from foldline.apps.gateway import session_shares
from foldline.errors import BadInput


@make_command
async def share(
    desk: Desk,
    name: NameArgument,
    owner: Annotated[
        str, typer.Argument(help="The owner of the keys that may read it; else all are listed.")
    ] = "",
    *,
    stop: Annotated[bool, typer.Option("--stop", help="They may no longer.")] = False,
) -> None:
    """Let the keys of another owner read a session through the gateway; nothing else is allowed."""
    if stop and not owner:
        raise BadInput("--stop ends what one owner may read; write whose")
    async with desk.open_store() as store:
        place = await resolve_session_name(store, desk.tenant, name)
        if stop:
            shared = await session_shares.unshare_session(store, place, owner)
        elif owner:
            shared = await session_shares.share_session(store, place, owner)
        else:
            shared = await session_shares.list_readers(store, place)
    desk.print_answer(
        {"session": place.session, "shared": shared},
        lambda: [clean_line(one) for one in shared] or ["shared with nobody"],
    )
