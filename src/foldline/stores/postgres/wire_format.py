"""The statements of every append in PostgreSQL's own bytes.

Knows the binary form of the few types that an append has, and prepares each statement once in a
connection, where that lasts. Refuses to know appends. psycopg's cursor does the same for any type
and any statement: a third of the client's time of an append went into finding out which (280 µs
with a cursor, 180 without, of them 170 for the round trip).
"""

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from psycopg import generators, pq
from psycopg.errors import error_from_result

Value: TypeAlias = bytes | None
_INT4, _INT8, _FLOAT8, _HEAD = (struct.Struct(one) for one in ("!i", "!q", "!d", "!iiIii"))
_prepared: "WeakKeyDictionary[psycopg.AsyncConnection[Any], set[bytes]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Type:
    """A type, its arrays' number, and how its values are written."""

    name: str
    oid: int
    array: int
    written: Callable[[Any], bytes]


TEXT = Type("text", 25, 1009, lambda one: cast("str", one).encode())
UUID_ = Type("uuid", 2950, 2951, lambda one: cast("UUID", one).bytes)
INT4 = Type("int4", 23, 1007, _INT4.pack)
INT8 = Type("int8", 20, 1016, _INT8.pack)
BOOL = Type("bool", 16, 1000, lambda one: b"\1" if one else b"\0")
FLOAT8 = Type("float8", 701, 1022, _FLOAT8.pack)
BYTEA = Type("bytea", 17, 1001, lambda one: one)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with `$1…` for its values."""

    name: bytes
    text: bytes
    types: tuple[Type, ...]
    arrays: int = 1_000
    """From which value on they are arrays."""

    @property
    def oids(self) -> list[int]:
        """Its values' types, as the server numbers them."""
        return [one.array if at >= self.arrays else one.oid for at, one in enumerate(self.types)]


def single(one: Type, value: Any) -> Value:
    """One value."""
    return None if value is None else one.written(value)


def array(one: Type, values: Sequence[Any]) -> bytes:
    """Several values of one type."""
    parts = [_HEAD.pack(1, 1, one.oid, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            body = one.written(value)
            parts += (_INT4.pack(len(body)), body)
    return b"".join(parts)


def numbers(body: bytes | None, form: str) -> list[Any]:
    """What an array of numbers says: `form` is `i`, `q` or `d`."""
    if not body:
        return []
    one = struct.Struct(f"!{form}")
    (count,) = _INT4.unpack_from(body, 12)
    found: list[Any] = []
    at = _HEAD.size
    for _ in range(count):
        (size,) = _INT4.unpack_from(body, at)
        at += 4
        found.append(None if size < 0 else one.unpack_from(body, at)[0])
        at += max(size, 0)
    return found


def number(body: bytes | None, form: str) -> Any:
    """What one number says."""
    return None if body is None else struct.unpack(f"!{form}", body)[0]


async def speak(
    connection: "psycopg.AsyncConnection[Any]", statement: Statement, values: Sequence[Value]
) -> list[Value]:
    """The one row that a statement gives, as bytes."""
    server = connection.pgconn
    formats = [pq.Format.BINARY] * len(values)
    if connection.prepare_threshold is None:  # behind a pooler nothing that is prepared lasts
        server.send_query_params(
            statement.text, values, statement.oids, formats, result_format=pq.Format.BINARY
        )
    else:
        known = _prepared.setdefault(connection, set())
        if statement.name not in known:
            server.send_prepare(statement.name, statement.text, statement.oids)
            results = await connection.wait(generators.execute(server))
            # One who gave up before the answer came has left it prepared.
            with suppress(psycopg.errors.DuplicatePreparedStatement):
                _checked(connection, results)
            known.add(statement.name)
        server.send_query_prepared(statement.name, values, formats, result_format=pq.Format.BINARY)
    result = _checked(connection, await connection.wait(generators.execute(server)))
    return [result.get_value(0, at) for at in range(result.nfields)]


def _checked(connection: "psycopg.AsyncConnection[Any]", results: Sequence[Any]) -> Any:
    result = results[-1]
    if result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        return result
    raise error_from_result(result, connection.info.encoding)
