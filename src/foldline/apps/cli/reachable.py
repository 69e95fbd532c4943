"""Whether a server of one's own is there at all, and what to say where it is not.

Knows an address from what is none, and a server that is silent from one that is not there. Refuses
to know what servers say: that is `foldline.models.servers`.
"""

import asyncio
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from foldline.errors import BadInput

_SECONDS = 3.0


async def unreached(url: str, *, option: str) -> str:
    """Why nobody is at an address, and the way out; "" where somebody is."""
    try:
        found = urlsplit(url)
        known = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        found, known = urlsplit(""), False
    if not known or not url.isprintable() or " " in url:
        raise BadInput(f"{url!r} is no address; write {option} http://127.0.0.1:8080/v1")
    # Who goes there is nobody's to read, and urllib would look for a host of that name.
    place = found._replace(netloc=found.netloc.rpartition("@")[2], query="").geturl()
    why = await asyncio.to_thread(_why, place)
    return f"{place} cannot be reached ({why}); start it, or correct {option}" if why else ""


def _why(url: str) -> str:
    try:
        urlopen(url, timeout=_SECONDS).close()  # noqa: S310 - http, as was seen above
    except HTTPError:
        return ""  # it answers
    except URLError as fault:
        return getattr(fault.reason, "strerror", None) or str(fault.reason)
    except (OSError, ValueError, HTTPException):
        return ""  # it was reached, and said nothing that is HTTP
    return ""
