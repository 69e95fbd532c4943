"""A browser of a few lines for the pages: it keeps its cookie, fills in forms, and reads what came."""

import asyncio
from contextlib import ExitStack, asynccontextmanager, contextmanager
from html.parser import HTMLParser
from urllib.parse import urlencode, urlsplit

from foldline.apps.gateway import local_access
from foldline.apps.gateway.api.pool import Pool, PoolPlace
from foldline.apps.pages import SignIns
from foldline.apps.pages.pages_app import LocalPages, check_local_token
from foldline.stores.encryption import CryptStore
from foldline.stores.open_store import store_at

HOST = "127.0.0.1:8123"
ORIGIN = f"http://{HOST}"
COOKIE = "foldline-8123"


KINDS = ("sqlite", "encrypted", "postgresql", "encrypted postgresql")
"""The stores that the pages are tried with; the fixture `kind` sets the one that `a_store` opens."""
chosen = {"kind": "sqlite"}


@contextmanager
def a_store():
    """An empty store of the chosen kind."""
    is_postgresql = chosen["kind"].endswith("postgresql")
    with ExitStack() as stack:
        address = ":memory:"
        if is_postgresql:
            from serving import address_of, an_empty_schema  # noqa: PLC0415 - needs the extra `pg`

            address = address_of(stack.enter_context(an_empty_schema()))
        store = store_at(address)
        yield CryptStore(store, bytes(range(32))) if "encrypted" in chosen["kind"] else store


class Parsed(HTMLParser):
    """The elements of a page, its forms, and its text."""

    def __init__(self, body):
        super().__init__(convert_charrefs=True)
        self.elements, self.forms, self.text = [], [], ""
        self.feed(body)

    def handle_starttag(self, tag, attrs):
        """An element begins; a form's fields are those behind it."""
        given = dict(attrs)
        self.text += " " if tag in ("td", "th", "dt", "dd", "li", "p") else ""
        self.elements.append((tag, given))
        if tag == "form":
            self.forms.append((given, {}))
        elif tag == "input" and self.forms and "name" in given:
            self.forms[-1][1][given["name"]] = given.get("value", "")

    def handle_data(self, data):
        """A text."""
        self.text += data

    def find_form(self, action):
        """The form that goes to a page, with what is filled in."""
        return next(one for one in self.forms if urlsplit(one[0]["action"]).path == action)

    def list_links(self):
        """Every address that the page names."""
        wanted = ("href", "src", "action", "poster", "data", "formaction", "xlink:href")
        return [
            value for _, attrs in self.elements for name, value in attrs.items() if name in wanted
        ]


class Answer:
    """What came."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        """The body as text."""
        return self.body.decode()

    @property
    def page(self):
        """The body as a page."""
        return Parsed(self.text)


class Browser:
    """A browser that is signed in, or not yet."""

    def __init__(self, app, *, root="", port=8123):
        self.app, self.root, self.port = app, root, port
        self.cookie = ""

    async def ask(self, method, path, *, body=b"", headers=(), raw=None):
        """One request as the server would pass it on."""
        target = urlsplit(path)
        given = {"host": HOST, **({"cookie": self.cookie} if self.cookie else {}), **dict(headers)}
        scope = {
            "type": "http", "method": method, "path": self.root + target.path, "scheme": "http",
            "raw_path": (self.root + target.path).encode(), "root_path": self.root,
            "query_string": target.query.encode(), "server": ("127.0.0.1", self.port),
            "headers": raw or [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value is not None],
        }  # fmt: skip
        sent = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        if "set-cookie" in headers:
            self.cookie = headers["set-cookie"].partition(";")[0]
        return Answer(sent[0]["status"], headers, sent[1]["body"])

    async def get(self, path, **given):
        """A page, by its address and parameters."""
        return await self.ask("GET", f"{path}?{urlencode(given)}" if given else path)

    async def post(self, path, fields, **headers):
        """What a page's form sends; a header that is None is left out."""
        given = {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask(
            "POST", path, body=urlencode(fields, doseq=True).encode(), headers=given
        )

    async def submit(self, answer, action, **fields):
        """Press the button of a form of a page."""
        attrs, filled = answer.page.find_form(action)
        return await self.post(attrs["action"], {**filled, **fields})


@asynccontextmanager
async def opened(*, edit=True):
    """The pages of a store, and a browser that has entered by the ticket."""
    with a_store() as store:
        async with _opened(store, edit=edit) as browser:
            yield browser


@asynccontextmanager
async def _opened(store, *, edit):
    token = local_access.make_token({})
    check = check_local_token(token, tenant="local")
    sign_ins = SignIns(check, cookie=COOKIE, may_edit=edit, token=token, side=store)
    pages = LocalPages(Pool(PoolPlace(store=store, model_of=None)), sign_ins)
    browser = Browser(pages)
    browser.sign_ins, browser.store, browser.token = sign_ins, store, token
    await browser.get("/enter", ticket=sign_ins.issue_ticket())
    try:
        yield browser
    finally:
        await pages._pages.close()
        await pages._pool.close()
        await store.close()


async def settled(browser):
    """Wait until the list and its figures have been read."""
    await browser.get("/")
    for _ in range(200):
        lists = browser.app._pages._lists
        if all(kept.whole for kept in lists._kept.values()) and lists.figures._task.done():
            return
        await asyncio.sleep(0.01)
