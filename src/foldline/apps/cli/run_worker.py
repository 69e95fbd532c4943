"""`foldline worker`: a process that prepares and installs the folds that sessions have queued.

A signal ends it within ten seconds. The jobs themselves are in `session.fold_worker`.
"""

import asyncio
import logging
import signal
import sys
from asyncio import get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from foldline.apps.cli.build_agent import Wish, list_untrusted
from foldline.apps.cli.config import ConfigOption, ProfileOption, SetOption, parse_flags
from foldline.apps.cli.context import Desk, make_command
from foldline.apps.cli.exit_codes import DONE
from foldline.apps.cli.output import clean_line, print_lines, print_remark
from foldline.apps.gateway.current_settings import CurrentSettings
from foldline.errors import BadInput
from foldline.models.clients import client
from foldline.models.port import Model
from foldline.models.summarize import Tellers
from foldline.session.host import Host, make_teller, names_address
from foldline.session.use_settings import read_api_key
from foldline.settings.tree import NO_MODEL, OWN_MODEL
from foldline.stores.base import POSTGRES, Name

if TYPE_CHECKING:
    from foldline.apps.gateway.models import Models
    from foldline.session.fold_worker import Done

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SummarizerClients:
    """The models that write narratives: a client per name and host, made when first needed."""

    def __init__(
        self,
        names: Sequence[str] = (OWN_MODEL,),
        *,
        base_url: str | None = None,
        template: str = "",
        api_key: str | None = None,
        at_upstream: Callable[[str], Model] | None = None,
    ) -> None:
        self._at_upstream = at_upstream
        self._names, self._base_url, self._template = names, base_url, template
        self._api_key = api_key
        self._clients: dict[tuple[str, str], Model] = {}

    def __call__(self, model: str, host: Host | None = None) -> Tellers:
        """Return the models to ask for a session, in order, at the session's host."""
        own = [] if names_address(model) else [model]
        names = [one for name in self._names for one in (own if name == OWN_MODEL else [name])]
        found = Tellers(tuple(self._make_client(name, host) for name in names))
        return replace(found, template=self._template) if self._template else found

    def _make_client(self, name: str, host: Host | None) -> Model:
        there = self._base_url or (host and host.base_url) or ""
        if not there and self._at_upstream is not None:
            return self._at_upstream(name)
        if (name, there) not in self._clients:
            self._clients[name, there] = (
                client(name, base_url=there, api_key=self._api_key)
                if self._base_url and "@http" not in name
                else make_teller(name, host, api_key=self._api_key)
            )
        return self._clients[name, there]

    async def close(self) -> None:
        """Close all clients."""
        for one in self._clients.values():
            await one.close()


class TenantSummarizers:
    """The models that write narratives, as each tenant's settings name them now.

    A relayed conversation names no host: its client asked the gateway. So its models are asked at
    the gateway's upstreams.
    """

    def __init__(
        self,
        current: CurrentSettings,
        *,
        names: Sequence[str] = (),
        base_url: str | None = None,
        at_upstream: Callable[[str], Model] | None = None,
    ) -> None:
        self._current, self._names = current, tuple(names)
        self._base_url, self._at_upstream = base_url, at_upstream
        self._clients: dict[tuple[tuple[str, ...], str], SummarizerClients] = {}

    def find_clients(self, tenant: str) -> SummarizerClients | None:
        """Return a tenant's narrators; None if it wants none."""
        own = self._current.find_tenant(tenant)
        names = self._names or own.summarizer
        if NO_MODEL in names:
            return None
        key = (names, own.compaction.prompt_template)
        if key not in self._clients:
            self._clients[key] = SummarizerClients(
                names,
                base_url=self._base_url,
                template=own.compaction.prompt_template,
                api_key=read_api_key(own),
                at_upstream=self._at_upstream,
            )
        return self._clients[key]

    async def close(self) -> None:
        """Close all clients."""
        for one in self._clients.values():
            await one.close()


@make_command
async def worker(  # noqa: PLR0913 - one option for each thing that may be otherwise
    desk: Desk,
    *,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", help="Sessions at a time.", min=1)
    ] = 4,
    summarizer: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Who tells folds; else each session's own model."),
    ] = None,
    fallback: Annotated[
        list[str] | None,
        typer.Option("--fallback", metavar="MODEL", help="Who is asked if that fails; repeatable."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="Where they are; else where sessions are."),
    ] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            "--upstream",
            metavar="URL",
            help="Where models of relayed conversations are, as `serve` has it.",
        ),
    ] = None,
    no_model: Annotated[
        bool, typer.Option("--no-model", help="Ask nobody: folds without a narrative.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="End when nothing is queued any more.")
    ] = False,
    profile: ProfileOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Prepare and install the folds that sessions on PostgreSQL have queued.

    Start as many as you like, on any machine. SIGTERM or Ctrl-C ends one within ten seconds; what
    it has in hand is done then, or given back. Settings are read as `foldline chat` reads them, and
    again when they change; tenants have their own.
    """
    wish = Wish(desk=desk, flags=parse_flags(set_), profile=profile, config=config)
    wish = wish.apply_settings(wish.load_settings())
    _check_requirements(wish.desk.address)
    wish = await wish.resolve_trust()
    desk, settings = wish.desk, wish.load_settings()
    for note in list_untrusted(settings):
        print_remark(note)
    from foldline.session.fold_queue import Queue  # noqa: PLC0415 - an extra
    from foldline.session.fold_worker import Worker, fold_session  # noqa: PLC0415
    from foldline.session.retention import run_retention  # noqa: PLC0415

    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)  # outcomes are printed here
    named = (summarizer or OWN_MODEL, *(fallback or ())) if summarizer or fallback else ()
    read_api_key(settings)  # a missing variable is said now, not in each job
    models = _open_upstream_models(upstream) if upstream else None
    current = CurrentSettings(
        settings, wish.load_settings, files=() if config is None else (config,)
    )
    asked = TenantSummarizers(
        current,
        names=named,
        base_url=base_url,
        at_upstream=models.open_model if models is not None else None,
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("foldline.gateway.settings").setLevel(logging.INFO)

    async def fold(name: Name, install: bool) -> "Done":  # noqa: FBT001 - the queue's word
        return await fold_session(
            store,
            name,
            tellers=None if no_model else asked.find_clients(name.tenant),
            install=install,
            facts_of=current.find_facts_of(name.tenant),
        )

    try:
        async with desk.open_store() as store, Queue(desk.address, connections=4) as queue:
            one = Worker(
                queue, fold, concurrency=concurrency, on_outcome=partial(_print_outcome, desk)
            )
            loop = get_running_loop()
            loop.set_exception_handler(_handle_loop_error)
            for number in _SIGNALS:
                loop.add_signal_handler(number, one.stop)
            loop.add_signal_handler(signal.SIGHUP, current.reload, "SIGHUP")
            current.start()

            def list_tenants() -> set[str]:
                return {desk.tenant, *current.settings.tenants}

            async with run_retention(
                store, list_tenants, current.get_retention, notify=print_remark
            ):
                await one.run(once=once)
    finally:
        await current.close()
        await asyncio.shield(asked.close())
        if models is not None:
            await models.close()
    return DONE


def _open_upstream_models(upstream: Sequence[str]) -> "Models":
    """Open the models at the gateway's upstreams, with the operator's key."""
    if missing := [name for name in ("aiohttp", "uvicorn") if find_spec(name) is None]:
        raise BadInput(
            f"--upstream needs {missing[0]!r}, which is not installed; "
            "pip install 'foldline[gateway]'"
        )
    from foldline.apps.gateway import models, network, settings  # noqa: PLC0415 - an extra

    return models.Models(
        settings.GatewaySettings(
            upstreams=settings.parse_upstreams(upstream), network=network.read_network()
        )
    )


def _check_requirements(address: str) -> None:
    """Raise if the store needs no worker, or the extra is not installed."""
    if not address.startswith(POSTGRES):
        raise BadInput(
            f"sessions in {address} fold by themselves, in the process that has them open; "
            "workers are for --store postgresql://…"
        )
    if missing := [name for name in ("procrastinate", "psycopg") if find_spec(name) is None]:
        raise BadInput(
            f"a worker needs {missing[0]!r}, which is not installed; pip install 'foldline[worker]'"
        )


def _handle_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Print an error that no task awaits, as when the end of a job could not be written."""
    fault = context.get("exception")
    cause = getattr(fault, "__cause__", None) or fault
    print_remark(f"{context.get('message')}: {' '.join(str(cause).split())}")


def _print_outcome(desk: Desk, name: Name | None, done: "Done", seconds: float) -> None:
    """Print a line per session; a message of the worker itself goes to stderr."""
    if name is None:
        print_remark(done.reason)
    elif desk.json:
        body = {"tenant": name.tenant, "session": name.session, **asdict(done)}
        print_lines(msgspec.json.encode({**body, "seconds": round(seconds, 3)}).decode())
    else:
        by = f", told by {done.by}" if done.by else ""
        why = f": {done.reason}" if done.reason else ""
        sizes = f"{done.before:,} → {done.after:,} tokens" if done.before else "-"
        who = clean_line(f"{name.tenant}/{name.session}")
        print_lines(f"{who}  {sizes}  {done.outcome}{by}{clean_line(why)}  {seconds:.1f} s")
    sys.stdout.flush()
