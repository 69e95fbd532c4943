"""How a store's address is written, and how it may be shown.

Knows a server's address from a file's path. Refuses to know stores: `stores.open` does.
"""

import warnings

POSTGRES = ("postgresql://", "postgres://")
SERVER = "://"


def without_secrets(address: str) -> str:
    """An address as a message may show it: of a server's, where it is and not who goes there."""
    kind, is_server, place = address.partition("?")[0].partition(SERVER)
    if not is_server:
        return address
    where = place.rpartition("@")[2]
    return f"{'postgresql' if address.startswith(POSTGRES) else kind}{SERVER}{where}"


def warn_unclosed(address: str) -> None:
    """Tell of a store that nobody closed and nobody can close any more."""
    warnings.warn(
        f"the store {without_secrets(address)!r} was dropped and not closed; close() its session, "
        "or open it in a `with` block",
        ResourceWarning,
        stacklevel=3,
    )
