"""`foldline serve`: the gateway's process.

Requests are handled in `foldline.apps.gateway`. Needs the extra `gateway`.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from foldline.apps.cli.build_agent import Wish, list_untrusted
from foldline.apps.cli.config import ConfigOption, ProfileOption, SetOption, parse_flags
from foldline.apps.cli.context import StoreOption, TenantOption, make_desk
from foldline.apps.cli.output import clean_line, print_lines, print_remark
from foldline.apps.cli.serve_workers import Supervisor, build_worker_command
from foldline.apps.run.private_gateway import RULE, follow_parent
from foldline.core.fold_selection import explain_folding
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.errors import BadInput
from foldline.proxy.conversations import Conversations
from foldline.settings.fields import CAPS, GATEWAY
from foldline.stores.base import POSTGRES
from foldline.stores.open_store import store_at

if TYPE_CHECKING:  # of an extra
    from foldline.apps.gateway.current_settings import CurrentSettings
    from foldline.apps.gateway.provider_routes import RouteFilter
    from foldline.apps.gateway.settings import GatewaySettings
    from foldline.apps.pages.access import SignIns
    from foldline.settings.tree import Settings

_PAGES = "/ui"
_NO_PAGES = "none: several processes at one port need the same FOLDLINE_TOKEN, or --keys"
_IN_STORE = "store"  # what --keys says instead of a file
_LIMITS, _PREPARE_FOLDS = f"{GATEWAY}limits", f"{GATEWAY}prepare_folds"
_MOST = 4_096  # conversations that a process holds
_EXTRA = ("uvicorn", "httptools", "aiohttp", "jinja2")
KeysOption = Annotated[
    str | None,
    typer.Option(
        "--keys", metavar="store|FILE", help="Keys of the gateway's own; else none are asked."
    ),
]


def serve(  # noqa: PLR0913, PLR0915 - one option for each thing that may be otherwise
    ctx: typer.Context,
    *,
    upstream: Annotated[
        list[str],
        typer.Option(
            "--upstream", metavar="URL", help="Where requests go: URL, openai=URL, google=URL, …"
        ),
    ],
    ca: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A company's CA: trusted beside the usual ones; PEM."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65_535)] = 8080,
    window: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="The models' window; else as known.", min=1)
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="The preset that plans; else the setting.")
    ] = None,
    fold_from: Annotated[
        list[str] | None,
        typer.Option(
            "--fold-from",
            metavar="TOKENS",
            help="Edit nothing that fits below this; AGENT=TOKENS for one kind of client.",
        ),
    ] = None,
    own_history: Annotated[
        bool,
        typer.Option(
            "--own-history",
            help="Send whole histories where clients only name an earlier answer.",
        ),
    ] = False,
    recall: Annotated[
        bool,
        typer.Option(
            "--recall",
            help="Offer models a tool that gets back what was cut or folded, and answer it.",
        ),
    ] = False,
    context: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Tell models how full the window is, from this share of it on: 0.5.",
            min=0,
            max=1,
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Keep no sessions: relay all as it comes.")
    ] = False,
    keys: KeysOption = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="Let anybody in who reaches the port.")
    ] = False,
    allowed: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-route",
            metavar="ROUTE",
            help="A route that passes beside those that ask models: 'GET /v1/files/*'; * for all.",
        ),
    ] = None,
    allowed_models: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-model",
            metavar="PATTERN",
            help="Models that may be asked; TENANT=PATTERN for one tenant; else all.",
        ),
    ] = None,
    audit: Annotated[
        str | None, typer.Option(metavar="FILE", help="One line of JSON for each request.")
    ] = None,
    on_disconnect: Annotated[
        str | None,
        typer.Option(
            metavar="pause|continue",
            help="What becomes of an answer nobody waits for; else the setting.",
        ),
    ] = None,
    most_body: Annotated[
        int, typer.Option("--max-body", metavar="BYTES", help="The largest request.", min=1)
    ] = 32_000_000,
    each: Annotated[
        int, typer.Option("--concurrent", metavar="N", help="Requests of one key at a time.", min=1)
    ] = 1_000,
    retries: Annotated[
        int, typer.Option(metavar="N", help="Asked again before an answer began.", min=0)
    ] = 2,
    drain: Annotated[
        float, typer.Option(metavar="SECONDS", help="For answers to end when it does.", min=0)
    ] = 30.0,
    linger: Annotated[
        float, typer.Option(metavar="SECONDS", help="Unready but serving, at its end.", min=0)
    ] = 0.0,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="Processes at the port.", min=1)
    ] = 1,
    shared: Annotated[
        bool, typer.Option("--reuse-port", help="Several processes at one port.")
    ] = False,
    inherited: Annotated[
        int | None,
        typer.Option("--socket", hidden=True, help="A socket that the parent process opened."),
    ] = None,
    relays_faults: Annotated[
        bool, typer.Option("--relay-faults", hidden=True, help="Relay what cannot be planned.")
    ] = False,
    profile: ProfileOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    store_: StoreOption = None,
    tenant_: TenantOption = None,
) -> None:
    """Relay requests to a provider, planned to fit the model's window.

    Change a client's base URL and nothing else. SIGTERM or Ctrl-C ends it when answers are over.
    Settings are read as `foldline chat` reads them: docs/how-to/gateway.md.
    """
    _check_extra()
    from foldline.apps.gateway import local_access, server, settings  # noqa: PLC0415 - an extra
    from foldline.apps.gateway.api_keys import Keys, KeySource  # noqa: PLC0415
    from foldline.apps.gateway.asgi import Gateway  # noqa: PLC0415
    from foldline.apps.gateway.audit import Audit  # noqa: PLC0415
    from foldline.apps.gateway.current_settings import CurrentSettings  # noqa: PLC0415
    from foldline.apps.gateway.key_store import StoredKeys  # noqa: PLC0415
    from foldline.apps.gateway.models import Models  # noqa: PLC0415
    from foldline.apps.gateway.network import read_network  # noqa: PLC0415
    from foldline.apps.pages import PagesApp  # noqa: PLC0415
    from foldline.apps.pages.pages_app import make_sign_ins  # noqa: PLC0415
    from foldline.session.use_settings import build_caps  # noqa: PLC0415

    flags = {
        "policy": policy,
        "model.max_input_tokens": window,
        "session.on_disconnect": _parse_disconnect_mode(on_disconnect),
    }
    wish = Wish(
        desk=make_desk(store=store_, tenant=tenant_, under=ctx.obj),
        flags={**{key: one for key, one in flags.items() if one is not None}, **parse_flags(set_)},
        profile=profile,
        config=config,
    )
    said = wish.load_settings()  # faults are shown before a port or a store is opened
    passage = _build_passage(allowed or (), allowed_models or (), has_keys=bool(keys))
    in_store = keys == _IN_STORE
    ours: KeySource | None = Keys(keys) if keys and not in_store else None
    settings.must_be_closed(host, has_keys=bool(keys), is_open=is_open)
    # Sessions are readable only with a key of ours, or with the token that is printed here.
    is_local = not keys and settings.is_loopback(host) and not is_open and not plain
    token = local_access.make_token() if is_local else None
    if not plain or in_store:
        wish = asyncio.run(_prepare_store(wish))
        said = wish.load_settings()
    if inherited is None:  # otherwise the parent looked
        _must_be_in_force(said)
    mine = wish.desk
    store = None if plain else store_at(mine.address)
    if in_store:
        ours = StoredKeys(store or store_at(mine.address), owns_store=plain)
    current = CurrentSettings(
        said,
        wish.load_settings,
        files=() if config is None else (config,),
        address=mine.address,
    )
    _check_worker(current, mine.address)
    of_gateway = settings.GatewaySettings(
        upstreams=settings.parse_upstreams(upstream),
        keys=ours,
        passage=passage,
        token=token,
        network=read_network(ca=ca),
        limits=settings.GatewayLimits(
            body=most_body,
            each=each,
            retries=retries,
            drain_seconds=drain,
            held=said.gateway.max_memory,
            messages=said.gateway.max_messages,
            values=said.gateway.max_values,
        ),
        on_disconnect=said.session.on_disconnect,
        fold_from=settings.fold_from(fold_from or ()),
        relays_faults=relays_faults,
        caps=build_caps(said),
        tenant=mine.tenant,
        current=current,
    )
    if workers > 1 and inherited is None:
        command = build_worker_command(sys.argv[1:])
        if token is not None:  # each process has to know it
            os.environ[local_access.VARIABLE] = token.reveal()
        listening = server.open_socket(host, port, shared=shared)
        raise typer.Exit(Supervisor(command, listening, count=workers, drain=drain + linger).run())
    models = Models(of_gateway)
    if inherited is None:
        listening = server.open_socket(host, port, shared=shared)
    else:  # of `foldline run`: it ends with its parent
        listening = socket.socket(fileno=inherited)
        follow_parent(sys.stdin.buffer)
    conversations = None
    if store is not None:
        conversations = Conversations(
            store,
            partial(current.build_relayed_facts, tenant=mine.tenant),
            shared=True,
            prepare=partial(current.give_narrator, client_of=models.open_narrator),
            facts_of_tenant=current.build_relayed_facts,
            most=_MOST,
            prefix="talk",
            own_history=own_history,
            recall=recall,
            context=context,
        )
    sign_ins = make_sign_ins(of_gateway, port=listening.getsockname()[1], store=store)
    # Of several processes at one port each must know what signed a browser in.
    has_secret = local_access.VARIABLE in os.environ or not shared
    has_pages = not plain and (ours is not None or (is_local and has_secret))
    gateway = Gateway(
        of_gateway,
        store=store,
        conversations=conversations,
        sessions=ours is not None or is_local,
        audit=Audit(audit) if audit is not None else None,
        models=models,
        pages=(lambda pool: PagesApp(pool, sign_ins)) if has_pages else None,
    )
    where = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    facts = current.build_relayed_facts("", tenant=mine.tenant)
    kept = "none (--plain): every request goes out as it came" if plain else mine.where
    asks = ours.describe() if ours is not None else "providers' keys pass through"
    print_lines(
        f"foldline gateway at {where}",
        "",
        f"  OPENAI_BASE_URL={where}/v1",
        f"  ANTHROPIC_BASE_URL={where}",
        f"  GOOGLE_GEMINI_BASE_URL={where}",
        "",
        *(
            f"upstream  {to.host}{to.path}  {name}".rstrip()
            for name, to in of_gateway.upstreams.items()
        ),
        *_show_proxies(of_gateway),
        f"sessions  {clean_line(kept)}",
        *([] if plain else [f"policy    {said.policy.name}  {_describe_origin(said)}".rstrip()]),
        *([] if plain else [f"{RULE}{explain_folding(load(Spine(), {}, head=-1), facts)}"]),
        f"keys      {asks}",
        f"limits    {_describe_limits(said)}",
        *([] if token is None else [f"token     {token.reveal()}  for {where}/sessions"]),
        *([f"look      {where}{_format_entrance(sign_ins)}"] if has_pages else []),
        *([f"look      {_NO_PAGES}"] if is_local and not has_secret else []),
        f"pages     {where}/healthz  /readyz  /metrics",
    )  # fmt: skip
    sys.stdout.flush()
    server.run_server(server.Served(gateway, linger=linger), listening)
    print_remark("ended")


def _must_be_in_force(settings: "Settings") -> None:
    """Raise if limits, caps or tenants' tables are written where nobody has trusted them."""
    held = [one for one in settings.untrusted if one.name.startswith((GATEWAY, CAPS))]
    if held:
        names, file = sorted({one.name for one in held}), held[0].origin.rpartition(":")[0]
        raise BadInput(
            f"{held[0].origin} sets {', '.join(names)}, and none of it would be in force: nobody "
            f"has trusted this folder's settings; name the file: --config {file}"
        )


def _describe_limits(settings: "Settings") -> str:
    """Say which limits and caps are in force, and where they are written."""
    names = [name for name in settings.values if name == _LIMITS or name.startswith(CAPS)]
    if not names:
        return "none"
    origins = dict.fromkeys(settings.origins[name] for name in names)
    return clean_line(f"{', '.join(names)}  {', '.join(origins)}")


def _check_worker(current: "CurrentSettings", address: str) -> None:
    """Raise if workers are to prepare folds and there can be none."""
    if current.settings.gateway.prepare_folds != "worker":
        return
    if not address.startswith(POSTGRES):
        raise BadInput(
            f'{_PREPARE_FOLDS} = "worker" is for sessions on PostgreSQL, and they are in {address}'
        )
    if find_spec("procrastinate") is None:
        raise BadInput(
            f'{_PREPARE_FOLDS} = "worker" needs the extra `worker`: '
            "pip install 'foldline[worker]'"
        )


def _build_passage(
    routes: Sequence[str], models: Sequence[str], *, has_keys: bool
) -> "RouteFilter":
    """Build what may pass: without keys of ours all routes, unless some are named."""
    from foldline.apps.gateway import provider_routes  # noqa: PLC0415 - an extra

    every, tenants = provider_routes.parse_models(models)
    return provider_routes.RouteFilter(
        provider_routes.parse_allowed(routes),
        is_open=not has_keys and not routes,
        models=every,
        tenant_models=tenants,
    )


def _format_entrance(sign_ins: "SignIns") -> str:
    """Return the address of the pages; without keys, one that signs a browser in, once."""
    ticket = sign_ins.issue_ticket()
    return f"{_PAGES}/enter?ticket={ticket}" if ticket else f"{_PAGES}/"


def _show_proxies(settings: "GatewaySettings") -> list[str]:
    """Return a line per upstream that is reached through a proxy, without the login."""
    from yarl import URL  # noqa: PLC0415 - an extra

    urls = [URL(to.host) for to in settings.upstreams.values()]
    found = [(url, settings.network.find_proxy(url)) for url in urls]
    return [f"proxy     {proxy.address}  for {url.host}" for url, proxy in found if proxy]


def _check_extra() -> None:
    if missing := [name for name in _EXTRA if find_spec(name) is None]:
        raise BadInput(
            f"the gateway needs {missing[0]!r}, which is not installed; "
            "pip install 'foldline[gateway]'"
        )


def _parse_disconnect_mode(given: str | None) -> Literal["pause", "continue"] | None:
    if given not in ("pause", "continue", None):
        raise BadInput(f"--on-disconnect {given!r}: write pause or continue")
    return given


def _describe_origin(said: "Settings") -> str:
    """Say where the policy is set; "" if it is the default."""
    return clean_line(said.origins.get("policy", ""))


async def _prepare_store(wish: Wish) -> Wish:
    """Apply the settings, and check that the store can be used.

    A missing file is created, readable by its owner only. What an untrusted folder's settings say
    is left out where it could do harm: nobody is here to be asked.
    """
    wish = await wish.resolve_trust()
    async with wish.desk.open_store(make=True) as store:
        await store.sessions(wish.desk.tenant, limit=1)
    for note in list_untrusted(wish.load_settings()):
        print_remark(note)
    return wish
