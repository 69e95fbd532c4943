"""`foldline completion`: what a shell needs to complete commands, options and sessions."""

import asyncio
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Literal

import typer

from foldline.apps.cli.context import make_desk
from foldline.stores.open_store import store_at

_MOST = 200


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(help="The shell that reads it.")
    ],
) -> None:
    """Print what makes a shell complete commands and sessions.

    bash: eval "$(foldline completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc;
    fish: foldline completion fish > ~/.config/fish/completions/foldline.fish
    """
    scripts = import_module("typer.completion")
    script = scripts.get_completion_script(
        prog_name="foldline", complete_var="_FOLDLINE_COMPLETE", shell=shell
    )
    sys.stdout.write(f"{script}\n")


def complete_session_name(incomplete: str) -> Iterator[str]:
    """Yield the sessions of the usual store whose names begin so; none if it cannot be read."""

    async def list_names() -> list[str]:
        desk = make_desk()
        store = store_at(desk.address)
        try:
            page = await store.sessions(desk.tenant, after=incomplete[:-1], limit=_MOST)
        finally:
            await store.close()
        return [one.session for one in page]

    try:
        names = asyncio.run(list_names())
    except Exception:  # noqa: BLE001 - a shell that completes shows no errors
        return
    yield from (name for name in names if name.startswith(incomplete))
