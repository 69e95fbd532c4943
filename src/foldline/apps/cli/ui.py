"""`foldline ui`: look at a store's sessions in a browser of this machine.

The pages are made in `foldline.apps.pages`. Needs the extra `gateway`.
"""

import asyncio
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from foldline.apps.cli.context import Desk, StoreOption, TenantOption, make_desk
from foldline.apps.cli.output import clean_line, print_lines, print_remark
from foldline.errors import BadInput
from foldline.stores.open_store import store_at

if TYPE_CHECKING:  # of an extra
    from foldline.apps.pages.pages_app import LocalPages

_EXTRA = ("uvicorn", "httptools", "jinja2")
_HOST = "127.0.0.1"
_READ_ONLY = ", read only: --edit lets you change them"
_HEAD, _HEAD_SECONDS = 65_536, 30.0  # of a request's head


def ui(
    ctx: typer.Context,
    *,
    edit: Annotated[
        bool, typer.Option("--edit", help="Let the pages fold, undo and pin; else they only show.")
    ] = False,
    port: Annotated[
        int, typer.Option(help="Where to listen; 0 takes a free one.", min=0, max=65_535)
    ] = 0,
    store_: StoreOption = None,
    tenant_: TenantOption = None,
) -> None:
    """Look at the sessions of a store in a browser of this machine.

    Prints an address that signs one browser in, once, and opens nothing by itself. Ctrl-C ends it.
    """
    if missing := [name for name in _EXTRA if find_spec(name) is None]:
        raise BadInput(
            f"the pages need {missing[0]!r}, which is not installed; "
            "pip install 'foldline[gateway]'"
        )
    desk = make_desk(store=store_, tenant=tenant_, under=ctx.obj)
    asyncio.run(_check_store(desk))
    from foldline.apps.gateway import local_access, server  # noqa: PLC0415 - an extra
    from foldline.apps.gateway.api import PoolPlace  # noqa: PLC0415
    from foldline.apps.gateway.api.pool import Pool  # noqa: PLC0415
    from foldline.apps.pages import SignIns  # noqa: PLC0415
    from foldline.apps.pages.pages_app import (  # noqa: PLC0415
        LocalPages,
        check_local_token,
        name_cookie,
    )

    token = local_access.make_token({})
    listening = server.open_socket(_HOST, port)
    taken = listening.getsockname()[1]
    check = check_local_token(token, tenant=desk.tenant)
    sign_ins = SignIns(check, cookie=name_cookie(taken), may_edit=edit, token=token)
    ticket = sign_ins.issue_ticket()

    def make_pages() -> "LocalPages":
        return LocalPages(
            Pool(PoolPlace(store=store_at(desk.address), model_of=_no_model)), sign_ins
        )

    print_lines(
        f"http://{_HOST}:{taken}/enter?ticket={ticket}",
        "",
        "Open it in a browser of this machine; it signs in once. Ctrl-C ends it.",
        f"sessions  {clean_line(desk.where)}{'' if edit else _READ_ONLY}",
    )
    sys.stdout.flush()
    server.prepare_process()
    asyncio.run(_serve(make_pages, listening))
    print_remark("ended")


async def _serve(make_pages: Any, listening: Any) -> None:
    """Serve until a signal. The store is opened here: it belongs to this event loop."""
    import uvicorn  # noqa: PLC0415 - an extra

    from foldline.apps.gateway.server import build_bounded_protocol  # noqa: PLC0415

    class LocalServer(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            loop = asyncio.get_running_loop()
            numbers = (signal.SIGINT, signal.SIGTERM)
            for number in numbers:
                loop.add_signal_handler(number, setattr, self, "should_exit", True)  # noqa: FBT003
            try:
                yield
            finally:
                for number in numbers:
                    loop.remove_signal_handler(number)

    config = uvicorn.Config(
        make_pages(),
        http=build_bounded_protocol(_HEAD, _HEAD_SECONDS),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    await LocalServer(config).serve(sockets=[listening])


async def _check_store(desk: Desk) -> None:
    """Say what is wrong with the store before an address is printed."""
    async with desk.open_store() as store:
        await store.sessions(desk.tenant, limit=1)


def _no_model(name: str, tenant: str) -> NoReturn:
    raise BadInput(f"these pages ask no model, so not {name!r} for {tenant!r}")
