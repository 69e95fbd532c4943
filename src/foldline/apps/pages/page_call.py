"""One request for a page, and its answer: addresses, forms, templates, and the headers of each.

Nothing of a page is asked of another host, and no page holds a script or a style of its own: the
policy that is sent with each forbids both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from foldline.apps.cli.output import format_age, format_size, format_time
from foldline.apps.gateway.api.api_call import NotFound
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.session_shares import is_shared
from foldline.apps.pages.access import Visitor
from foldline.apps.pages.safe_text import shorten_line
from foldline.core.names import format_count
from foldline.core.prices import format_dollars
from foldline.draw.course import format_tokens
from foldline.stores.base import Head, Name

if TYPE_CHECKING:
    from foldline.apps.gateway.api.pool import Pool
    from foldline.apps.pages.session_list import SessionLists
    from foldline.apps.pages.session_pages import Searches

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: tuple[tuple[str, str], ...] = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    # Not `no-referrer`: browsers then name no origin in a form's request, and changes need one.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cache-control", "no-store"),
)
HTML, SVG, JSON, CSV = "text/html; charset=utf-8", "image/svg+xml", "application/json", "text/csv"
_LONGEST_QUERY = 8_192
_LONGEST_FORM = 32_768
_LONGEST_NAME = 1_000
_MOST_PLACE = 2**40


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """An answer as bytes."""

    body: bytes
    media: str = HTML
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PageCall:
    """One request of a visitor who is signed in."""

    pool: "Pool"
    lists: "SessionLists"
    searches: "Searches"
    visitor: Visitor
    root: str
    """The path that the pages are mounted at."""
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict[str, str])
    """The fields of a posted form."""
    chosen: tuple[str, ...] = ()
    """The values of the form's field `policy`, which may be there several times."""

    def get(self, key: str) -> str:
        """Return a parameter of the address; "" if it is not there."""
        return self.query.get(key, "")

    def get_number(self, key: str, otherwise: int) -> int:
        """Return a number of the address."""
        given = self.get(key)
        if not given:
            return otherwise
        if not given.isascii() or not given.isdecimal() or int(given[:16]) > _MOST_PLACE:
            raise Refusal(400, "bad_number", f"{key} is a number, not {given[:40]!r}")
        return int(given[:16])

    async def find_session(
        self, given: str | None = None, *, to_change: bool = False
    ) -> tuple[Name, Head]:
        """Find the session that is named; another owner's is as one that does not exist.

        One that is shared is shown, and not changed.
        """
        name = Name(self.visitor.tenant, self.get("name") if given is None else given)
        if not 0 < len(name.session) <= _LONGEST_NAME or "\0" in name.session:
            raise NotFound("no session is named in this address; the list of sessions names them")
        visitor, store = self.visitor, self.pool.place.store
        head = await store.head(name)
        has_it = visitor.words and (visitor.sees is None or head.owner == visitor.sees)
        if not has_it and (to_change or not await is_shared(store, name, visitor.owner)):
            self.must_read_words()
            raise _make_no_session(name)
        if head.seq < 0:
            raise _make_no_session(name)
        return name, head

    def must_read_words(self) -> None:
        """Refuse a visitor who reads figures alone."""
        if not self.visitor.words:
            words = "this key reads figures without words; a session may be shared with it"
            raise Refusal(403, "bad_role", words)

    def must_edit(self) -> None:
        """Refuse a visitor who may not change sessions."""
        if not self.visitor.may_edit:
            raise Refusal(
                403, "read_only", "these pages only show; `foldline ui --edit` lets you change"
            )

    def link(self, page: str, /, **parameters: object) -> str:
        """Return the address of a page."""
        given = {key: value for key, value in parameters.items() if value not in ("", None)}
        query = urlencode(given, errors="surrogatepass")
        return f"{self.root}/{page}{'?' if query else ''}{query}"

    def render(
        self, template: str, *, status: int = 200, refresh: int = 0, **values: Any
    ) -> PageAnswer:
        """Render a page."""
        text = (
            _load_templates()
            .get_template(template)
            .render(link=self.link, visitor=self.visitor, root=self.root, **values)
        )
        headers = (("refresh", str(refresh)),) if refresh else ()
        return PageAnswer(text.encode("utf-8", "replace"), status=status, headers=headers)

    def redirect(self, page: str, /, **parameters: object) -> PageAnswer:
        """Send the browser to a page after a change."""
        place = self.link(page, **parameters)
        return PageAnswer(b"", status=303, headers=(("location", place),))


def _make_no_session(name: Name) -> NotFound:
    return NotFound(f"there is no session {name.session[:80]!r}; the list shows which are")


def render_outside(template: str, root: str, *, status: int = 200, **values: Any) -> PageAnswer:
    """Render a page for a visitor who is not signed in."""
    text = _load_templates().get_template(template).render(visitor=None, root=root, **values)
    return PageAnswer(text.encode("utf-8", "replace"), status=status)


def compile_templates() -> None:
    """Compile every page before the first is asked for."""
    for name in _load_templates().list_templates():
        _load_templates().get_template(name)


@cache
def _load_templates() -> Environment:
    made = Environment(
        loader=PackageLoader("foldline.apps.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    own: dict[str, Callable[..., str]] = {
        "age": format_age,
        "bytes": format_size,
        "clock": format_time,
        "count": format_count,
        "dollars": format_dollars,
        "line": shorten_line,
        "percent": format_share,
        "thousands": "{:,}".format,
        "tokens": format_tokens,
    }
    made.filters.update(own)
    return made


def format_share(share: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.0f}\u00a0%"


@cache
def load_static(name: str) -> bytes:
    """Load one of the files that all pages share."""
    return (files("foldline.apps.pages") / "static" / name).read_bytes()


def parse_pairs(raw: bytes, *, what: str) -> list[tuple[str, str]]:
    """Parse a query or a form."""
    if len(raw) > (_LONGEST_FORM if what == "form" else _LONGEST_QUERY):
        raise Refusal(414 if what == "address" else 413, "too_long", f"the {what} is too long")
    try:
        return parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="replace", max_num_fields=60
        )
    except ValueError:
        raise Refusal(400, "bad_address", f"the {what} cannot be read") from None
