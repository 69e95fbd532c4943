"""What a key may do: its role, and what each role is allowed.

    client     relays requests, and reaches its owner's sessions
    reader     reads figures: /metrics, and of its tenant's sessions what holds no words; one of the
               gateway's own tenant reads the metrics of all
    admin      reaches all sessions of its tenant, and its tenant's metrics
    operator   reaches all tenants, and all figures

`Client.rights` has them; the routes ask for what they need.
"""

from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from foldline.errors import BadInput

Role: TypeAlias = Literal["client", "reader", "admin", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)


class Rights(NamedTuple):
    """What a role is allowed."""

    relays: bool = False
    """Whether its requests are relayed to upstreams."""
    reaches: Literal["own", "tenant", "all"] = "own"
    """Whose sessions it reaches: its owner's, its tenant's, or all tenants'."""
    words: bool = True
    """Whether it may read what was said, and change it; else figures alone."""
    metrics: Literal["none", "tenant", "all"] = "none"
    """Whose series of /metrics it may read."""


RIGHTS: Final[dict[Role, Rights]] = {
    "client": Rights(relays=True),
    "reader": Rights(reaches="tenant", words=False, metrics="tenant"),
    "admin": Rights(relays=True, reaches="tenant", metrics="tenant"),
    "operator": Rights(relays=True, reaches="all", metrics="all"),
}


def parse_role(text: str) -> Role:
    """Return a role by its name; raises `BadInput` if there is none."""
    if text not in ROLES:
        raise BadInput(f"{text!r} is no role of a key; write {', '.join(ROLES)}")
    return text
