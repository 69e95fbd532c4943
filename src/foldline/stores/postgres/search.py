"""Search: words in a table of their own, brought up to date when it is asked.

Knows how a text becomes words: letters without accents, small. Each word stands in the index behind
a mark of its tenant, so a list of places in it is one tenant's and no longer than that one's.
Refuses to know events: `event_log.words` tells what a row says.
"""

import hashlib
import re
import unicodedata
from uuid import UUID

from foldline.errors import FormatError
from foldline.stores import event_log
from foldline.stores.base import Found, Name
from foldline.stores.postgres.connections import Connections, call, sid

_UNINDEXED = call("unindexed_sessions", "uuid")
_SPOKEN = call("spoken", "uuid", "int4")
_LEARN = call("learn", "uuid", "int4", "int4", "int4[]", "float8[]", "text[]")
_SEARCH = call("search_of", "uuid", "text", "int4", "text")
_BATCH = 500  # rows that `spoken` gives at a time
_LETTERS = 60  # of a word that are told apart
_WORDS = 8_000  # different words of one message: a tsvector holds 1 MB


async def search(  # noqa: PLR0913 - what the port narrows a search by
    db: Connections,
    tenant: str,
    words: str,
    *,
    session: str | None = None,
    limit: int = 20,
    owner: str | None = None,
) -> list[Found]:
    """Index what is new, then ask: appends stay as fast as they are without an index."""
    tokens = _tokens(words)
    if not tokens:
        return []
    sid(Name(tenant, ""))  # a tenant there must be
    within = None if session is None else sid(Name(tenant, session))
    for one, indexed, head in await db.ask(_UNINDEXED, tenant, within, again=True):
        await _index(db, tenant, one, indexed=indexed, head=head)
    mark = _mark(tenant)
    wanted = [f"'{mark}{token}'" for token in tokens]
    wanted += [] if within is None else [f"'{within.hex}'"]
    found = await db.ask(_SEARCH, tenant, within, " & ".join(wanted), limit, owner, again=True)
    return [Found(*one) for one in found]


async def _index(db: Connections, tenant: str, one: UUID, *, indexed: int, head: int) -> None:
    """Take in what a session has said since; where another does the same, leave it to that one."""
    mark = _mark(tenant)
    while indexed < head:
        rows = await db.ask(_SPOKEN, tenant, one, indexed, again=True)
        said = [(seq, moment, _words(body)) for seq, moment, body in rows]
        kept = [(seq, moment, words) for seq, moment, words in said if words]
        upto = rows[-1][0] if len(rows) == _BATCH else max(head, rows[-1][0] if rows else -1)
        lexemes = [
            " ".join((one.hex, *(f"{mark}{word}" for word in words))) for _, _, words in kept
        ]
        places, moments = [row[0] for row in kept], [row[1] for row in kept]
        ((done,),) = await db.ask(
            _LEARN, tenant, one, indexed, upto, places, moments, lexemes, again=True
        )
        if not done:
            return
        indexed = upto


def _words(body: bytes) -> list[str]:
    try:
        return _tokens(event_log.words(body))
    except FormatError:  # one row that is no event must not end every search
        return []


def _tokens(text: str) -> list[str]:
    """The words of a text, each once, as they are compared."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return list(dict.fromkeys(one[:_LETTERS] for one in re.findall(r"\w+", bare)))[:_WORDS]


def _mark(tenant: str) -> str:
    return hashlib.sha256(tenant.encode()).hexdigest()[:12]
