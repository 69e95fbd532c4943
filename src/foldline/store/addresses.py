"""How a store's address is written, and how it may be shown.

Knows a server's address from a file's path. Refuses to know stores: `store.at` does.
"""

POSTGRES = ("postgresql://", "postgres://")
SERVER = "://"


def without_secrets(address: str) -> str:
    """An address as a message may show it: of a server's, where it is and not who goes there."""
    kind, is_server, place = address.partition("?")[0].partition(SERVER)
    if not is_server:
        return address
    where = place.rpartition("@")[2]
    return f"{'postgresql' if address.startswith(POSTGRES) else kind}{SERVER}{where}"
