"""Answers requests to compact a history by a fold, without asking the provider.

    client:  … items, {"type": "compaction_trigger"}
    answer:  {"type": "compaction", "encrypted_content": "foldline:1:…"}

A fold takes milliseconds, can be read and undone, and is the same for every provider. Later
requests carry the item in place of their history; `conversations` writes that out again.
"""

import logging
import os
from functools import partial
from time import time
from typing import NamedTuple

from foldline.dialects.base import Dialect
from foldline.errors import BrokenView, Conflict, Erased, WireError
from foldline.proxy.conversations import ALL, Conversations
from foldline.proxy.identity import Caller, Scope
from foldline.stores.beside import run_beside

_log = logging.getLogger("foldline.proxy")


class CompactedHistory(NamedTuple):
    """An answer that names a fold."""

    session: str
    content_type: str
    body: bytes
    edits: int
    """How many edits were made; 0 where nothing could be folded."""


async def answer_compaction(  # noqa: PLR0913 - a request, and whose it is
    conversations: Conversations,
    dialect: Dialect,
    body: bytes,
    *,
    posted: bool,
    scope: Scope = ALL,
    caller: Caller | None = None,
) -> CompactedHistory | None:
    """Answer a request to compact its history; None if it is none, or must go to the provider.

    `posted` says whether it came on a path that only compacts.
    """
    whole: bytes | None = body
    if not posted:
        whole = await run_beside(partial(dialect.remove_trigger, body), size=len(body))
    if whole is None:
        return None
    try:
        mark, edits = await conversations.compact_history(
            dialect, whole, scope=scope, caller=caller
        )
    except (WireError, BrokenView, Conflict, Erased) as fault:
        _log.warning("a history was not compacted, and goes to the provider: %s", fault)
        return None
    _log.info("%s: a client's compaction is answered by a fold", mark.session)
    kind, answer = dialect.write_compaction(
        body, mark, name=os.urandom(12).hex(), created=int(time()), posted=posted
    )
    return CompactedHistory(mark.session, kind, answer, edits)
