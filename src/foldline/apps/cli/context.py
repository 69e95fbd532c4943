"""What each command works with: the store, the tenant, and whether the answer is JSON.

Knows the options that every command takes, before or behind its name. Refuses to know commands.
"""

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from foldline.apps.cli import store_location
from foldline.apps.cli.exit_codes import STOPPED
from foldline.apps.cli.output import document, remark, say
from foldline.core.parts import sound
from foldline.stores.base import Store
from foldline.stores.url import without_secrets

P = ParamSpec("P")
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="Where sessions are kept: a file's path. [env: FOLDLINE_STORE]",
        show_default=False,
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", help="Whose sessions: 'local' if not said."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
SHARED: dict[str, Any] = {
    "store_": (StoreOption, None),
    "tenant_": (TenantOption, None),
    "json_": (JsonOption, False),
}


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command has before it."""

    address: str
    tenant: str = "local"
    json: bool = False
    given: bool = False
    """Whether a person named the store."""

    @property
    def where(self) -> str:
        """The store's address as people may read it: without a password."""
        return without_secrets(self.address)

    def store(self, *, make: bool = False) -> AbstractAsyncContextManager[Store]:
        """The store, open."""
        return store_location.opened(self.address, make=make)

    def answer(self, body: Any, lines: Callable[[], list[str]]) -> None:
        """The answer: one document, or lines for a person."""
        if self.json:
            document(body)
        else:
            say(*lines())


def desk(
    *, store: str | None = None, tenant: str | None = None, json: bool = False, under: Any = None
) -> Desk:
    """What was said behind the command, else before it, else by the environment."""
    before = under if isinstance(under, Desk) else Desk("")
    named = store or (before.address if before.given else "") or os.environ.get("FOLDLINE_STORE")
    return Desk(
        named or str(store_location.default()),
        sound(tenant or before.tenant),
        json or before.json,
        given=bool(named),
    )


def command(
    work: Callable[Concatenate[Desk, P], Coroutine[Any, Any, int | None]],
) -> Callable[..., None]:
    """A command of the line: its own arguments, and those that all have; its end is a code."""

    @wraps(work)
    def doing(ctx: typer.Context, **given: Any) -> None:
        store, tenant, json = (given.pop(name) for name in SHARED)
        mine = desk(store=store, tenant=tenant, json=json, under=ctx.obj)
        try:
            code = asyncio.run(work(mine, **given))  # type: ignore[call-arg]
        except KeyboardInterrupt:
            remark("interrupted; what was written before stays")
            code = STOPPED
        raise typer.Exit(code or 0)

    own = [*inspect.signature(work).parameters.values()][1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(name, keyword, default=value, annotation=option)
        for name, (option, value) in SHARED.items()
    ]
    context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
    named = [one.replace(kind=keyword) for one in own]
    faced: Any = doing
    faced.__signature__ = inspect.Signature([context, *named, *shared])
    faced.__annotations__ = {one.name: one.annotation for one in (context, *named, *shared)}
    return doing
