"""A schema of PostgreSQL for one part of a bench: made by the store that opens it, dropped with its role.

`FOLDLINE_PG` names a database whose login may make roles; without it, the one on this machine.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

SERVER = os.environ.get("FOLDLINE_PG", "postgresql:///test?host=127.0.0.1")


def connected() -> "psycopg.Connection[Any]":
    """A connection beside the store, as the one who owns the schema."""
    return psycopg.connect(SERVER, autocommit=True)


def address_of(schema: str, **more: str) -> str:
    """The address of a schema."""
    own = "&".join(f"{key}={value}" for key, value in {"schema": schema, **more}.items())
    return f"{SERVER}{'&' if '?' in SERVER else '?'}{own}"


@contextmanager
def a_schema() -> Iterator[str]:
    """The name of a schema that nobody else has."""
    schema = f"foldline_b{uuid.uuid4().hex[:12]}"
    try:
        yield schema
    finally:
        with connected() as server:
            server.execute(f"drop schema if exists {schema} cascade".encode())
            server.execute(f"drop role if exists {schema}_app".encode())
