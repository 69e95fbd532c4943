"""`foldline keys`: the gateway's own keys, in the store or in a file.

In the store they can be listed, rotated, revoked and given an end, while gateways run. A file is
for one machine: `keys add --keys FILE` adds a line, and an editor removes it.

`foldline share` lets another owner read a session through the gateway.
"""

import re
from pathlib import Path
from time import time
from typing import Annotated, Any

import msgspec
import typer

from foldline.apps.cli.context import Desk, make_command, resolve_session_name
from foldline.apps.cli.output import Column, clean_line, format_time, render_table
from foldline.apps.cli.show import NameArgument
from foldline.apps.gateway import api_keys, session_shares
from foldline.apps.gateway.key_store import KeyRecord, KeyTable, shorten_digest
from foldline.apps.gateway.provider_routes import parse_allowed
from foldline.errors import BadInput

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LENGTH = re.compile(r"(\d{1,6})([smhd])")
KeyNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What you call the key.")]
ExpiresOption = Annotated[
    str | None, typer.Option("--expires", metavar="LENGTH", help="When it ends: 12h, 90d.")
]


@make_command
async def add_key(  # noqa: PLR0913 - one option for each thing that a key has
    desk: Desk,
    name: Annotated[str, typer.Argument(help="What you call it: one word.")],
    *,
    keys: Annotated[
        str | None, typer.Option("--keys", metavar="FILE", help="Into a file, not the store.")
    ] = None,
    role: Annotated[
        str, typer.Option("--role", metavar="ROLE", help="client, reader, admin or operator.")
    ] = "client",
    owner: Annotated[
        str, typer.Option("--owner", metavar="NAME", help="Who has its sessions; else NAME.")
    ] = "",
    admin: Annotated[bool, typer.Option("--admin", help="The same as --role admin.")] = False,
    expires: ExpiresOption = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="PATTERN", help="A model it may ask; else all: claude-*."),
    ] = None,
    allowed: Annotated[
        list[str] | None,
        typer.Option("--allow-route", metavar="ROUTE", help="A route that only it may use."),
    ] = None,
) -> None:
    """Make a key of the gateway's own, for a tenant; it is shown this once, and kept as a digest.

    Its sessions belong to its owner. A client reaches its owner's sessions, a reader figures alone,
    an admin all of its tenant, an operator all tenants.
    """
    has = api_keys.parse_role("admin" if admin else role)
    if keys is not None:
        if expires or models or allowed:
            raise BadInput("a key in a file has no end, models or routes of its own; use the store")
        key = api_keys.create_key(keys, name, tenant=desk.tenant, role=has, owner=owner)
    else:
        parse_allowed(allowed or ())
        now = time()
        record = KeyRecord(
            digest="",
            tenant=desk.tenant,
            name=name,
            owner=owner or name,
            role=has,
            created=now,
            expires=None if expires is None else now + _parse_length("--expires", expires),
            models=tuple(models or ()),
            routes=tuple(allowed or ()),
        )
        async with desk.open_store(make=True) as store:
            key = await KeyTable(store).add_key(record)
    answer = {"name": name, "tenant": desk.tenant, "role": has, "owner": owner or name, "key": key}
    desk.print_answer(answer, lambda: [key])


@make_command
async def list_keys(
    desk: Desk,
    *,
    every: Annotated[bool, typer.Option("--all", help="Of all tenants.")] = False,
) -> None:
    """List the keys in the store: whose they are, what they may do, when they were used."""
    async with desk.open_store() as store:
        table = KeyTable(store)
        records, uses = await table.list_records(), await table.list_last_uses()
    shown = [one for one in records if every or one.tenant == desk.tenant]
    body = [_describe_key(one, uses) for one in shown]
    titles = ("name", "tenant", "owner", "role", "id", "made", "ends", "used")
    heads = [Column(one, most=12, whole=one in ("name", "id")) for one in titles]

    def render_lines() -> list[str]:
        if not body:
            return [f"no keys of {'any tenant' if every else clean_line(desk.tenant)}"]
        rows = [
            [clean_line(one[each]) for each in ("name", "tenant", "owner", "role", "id")]
            + [_format_moment(one[each]) for each in ("created", "expires", "used")]
            for one in body
        ]
        return render_table(heads, rows)

    desk.print_answer(body, render_lines)


@make_command
async def rotate_key(
    desk: Desk,
    name: KeyNameArgument,
    *,
    grace: Annotated[
        str, typer.Option(metavar="LENGTH", help="How long those before stay valid: 0s, 1h, 7d.")
    ] = "24h",
    expires: ExpiresOption = None,
) -> None:
    """Make another key for the same owner, and show it; those before it end after the grace.

    Sessions and conversations go on: they are the owner's.
    """
    lasting = _parse_length("--grace", grace)
    ends = None if expires is None else time() + _parse_length("--expires", expires)
    async with desk.open_store() as store:
        table = KeyTable(store)
        key, record = await table.rotate_key(desk.tenant, name, grace=lasting, expires=ends)
    answer = {"name": name, "tenant": desk.tenant, "owner": record.owner, "key": key}
    desk.print_answer({**answer, "grace": lasting}, lambda: [key])


@make_command
async def revoke_key(
    desk: Desk,
    name: KeyNameArgument,
    *,
    beginning: Annotated[
        str, typer.Option("--id", metavar="ID", help="Only the one of this id: `keys list`.")
    ] = "",
) -> None:
    """End all keys of a name at once: all gateways refuse them within two seconds."""
    async with desk.open_store() as store:
        count = await KeyTable(store).revoke_keys(desk.tenant, name, beginning=beginning)
    answer = {"name": name, "tenant": desk.tenant, "revoked": count}
    desk.print_answer(answer, lambda: [f"{clean_line(name)}: {count} revoked"])


@make_command
async def import_keys(
    desk: Desk,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As `serve --keys` takes it.")],
) -> None:
    """Take the keys of a file into the store: they stay valid as they are.

    Keys that the store has, or that were revoked there, are left as they are.
    """
    now = time()
    given = [
        KeyRecord(one.digest, one.tenant, one.name, one.owner or one.name, one.role, created=now)
        for one in api_keys.Keys(file).list_entries()
    ]
    async with desk.open_store(make=True) as store:
        done = await KeyTable(store).import_records(given)
    stay = f"; {done.removed} were revoked, and stay so" if done.removed else ""
    desk.print_answer(
        done._asdict(), lambda: [f"{done.imported} imported, {done.known} were there already{stay}"]
    )


def _describe_key(record: KeyRecord, uses: dict[str, float]) -> dict[str, Any]:
    own = msgspec.to_builtins(record)
    del own["digest"]
    short = shorten_digest(record.digest)
    return {
        "id": short, "expires": None, "role": "client", **own,
        "valid": record.is_valid(time()), "used": uses.get(short),
    }  # fmt: skip


def _format_moment(moment: float | None) -> str:
    return "-" if moment is None else format_time(moment)


def _parse_length(option: str, written: str) -> float:
    found = _LENGTH.fullmatch(written.strip())
    if found is None:
        raise BadInput(f"{option} {written!r}: write a number and s, m, h or d, like 12h")
    return float(int(found[1]) * _UNITS[found[2]])


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
