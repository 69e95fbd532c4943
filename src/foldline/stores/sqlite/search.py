"""Search: an index of what was said, brought up to date when it is asked.

Knows the index and how far it has come in each session. Refuses to know what a row says: that is
asked of `Db.words`.
"""

import re

from foldline.stores.base import Found
from foldline.stores.sqlite.connection import Db

_PLACES = 32  # bits of a place in the index's key: above them stands the session
_SPOKEN = """
    select seq, body from events where sid = ? and seq > ?
    and kind in ('user_said', 'model_said', 'tool_returned') order by seq limit 500
"""


def search(  # noqa: PLR0913 - what the port narrows a search by
    db: Db,
    tenant: str,
    words: str,
    *,
    session: str | None = None,
    limit: int = 20,
    owner: str | None = None,
) -> list[Found]:
    """Index what is new, then ask: appends stay as fast as they are without an index."""
    tokens = re.findall(r"\w+", words)
    if not tokens:
        return []
    _index(db, tenant)
    query = " AND ".join(f'"{token}"' for token in tokens)
    only = {"session": session, "owner": owner}
    given = {column: value for column, value in only.items() if value is not None}
    where = " ".join(f"and {column} = ?" for column in given)
    found = db.sql(
        f"select session, words.rowid & {2**_PLACES - 1} from words "  # noqa: S608 - no word in it is given
        f"join sessions on sid = words.rowid >> {_PLACES} "
        f"where words match ? and tenant = ? {where} order by words.rowid desc limit ?",
        (query, tenant, *given.values(), limit),
    )
    return [Found(name, seq) for name, seq in found]


def _index(db: Db, tenant: str) -> None:
    behind = "select sid from sessions where tenant = ? and indexed < head"
    for (sid,) in db.sql(behind, (tenant,)):
        while _index_some(db, sid):
            pass


def _index_some(db: Db, sid: int) -> bool:
    """Index the next rows of a session; False where there are no more."""
    with db.transaction():
        # Asked in here: since the list another process may have indexed more, or have erased
        # something, and the index with it.
        found = db.sql("select indexed, head from sessions where sid = ?", (sid,))
        if not found or found[0][0] >= found[0][1]:
            return False
        ((indexed, head),) = found
        rows = db.sql(_SPOKEN, (sid, indexed))
        for seq, body in rows:
            text = db.words(body)
            if text.strip():
                place = sid << _PLACES | seq
                db.sql("insert or replace into words (rowid, text) values (?, ?)", (place, text))
        done = rows[-1][0] if rows else head
        db.sql("update sessions set indexed = ? where sid = ?", (done, sid))
    return True


def forget(db: Db, sid: int) -> None:
    """Leave no word of a session in the index, if it has any: the next search makes it anew.

    FTS5 hides the words of a deleted row and keeps them: neither `optimize` nor `secure-delete`
    took them out of the file, and R-73 asks for that. So all of the index goes.
    """
    if db.sql("select 1 from sessions where sid = ? and indexed >= 0", (sid,)):
        db.sql("insert into words (words) values ('delete-all')")
        db.sql("update sessions set indexed = -1 where indexed >= 0")
