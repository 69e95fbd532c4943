"""Look at the site in a real browser: every page, at a desk's width and a phone's.

    just docs shots                  all pages, into build/shots
    just docs shots FOLDER WORD      only pages whose picture's name holds a word

Serves build/site on a free port, takes a picture of each page at both widths, and exits 1 on a page
that scrolls sideways, an error in the console, a picture that is not there, or anything that is
asked of another host. Without Chromium it says so and exits 0: what a build can tell, it has told.
"""

import asyncio
import base64
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, WSMsgType, web

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
WIDTHS = {"desk": (1280, 900), "phone": (390, 844)}
DARK = ("", "reference/events/")
"""Pages that are looked at in the dark, too: the colours of all the others are the same."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_TALLEST = 2_600  # pixels of a picture: who wants to see more looks at the page
# What is wider than the page, and not inside something that scrolls by itself.
_LOOK = """(() => {
  const wide = document.documentElement.clientWidth;
  const scrolls = document.documentElement.scrollWidth > wide
    || document.body.scrollWidth > wide;
  const inside = (node) => {
    for (let up = node.parentElement; up; up = up.parentElement)
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return true;
    return false;
  };
  const out = [...document.querySelectorAll('.md-content *')].filter((node) =>
    node.getBoundingClientRect().right > wide + 1 && node.offsetParent && !inside(node));
  const broken = [...document.images].filter((one) => one.complete && !one.naturalWidth);
  return JSON.stringify({
    scrolls, tall: document.documentElement.scrollHeight,
    out: out.slice(0, 3).map((node) => node.outerHTML.slice(0, 90)),
    broken: broken.map((one) => one.src)});
})()"""


@dataclass
class Page:
    """One tab of the browser, spoken to in its own protocol."""

    socket: Any
    faults: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    first: float = 0.0
    """Seconds to the first byte of the page, and its bytes, where somebody has measured them."""
    size: int = 0
    _waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _last: int = 0

    async def hear(self) -> None:
        """Take in what the browser tells, until it is gone."""
        async for message in self.socket:
            if message.type is WSMsgType.TEXT:
                self._heard(json.loads(message.data))

    def _heard(self, told: dict[str, Any]) -> None:
        if (number := told.get("id")) is not None:
            self._waiting.pop(number).set_result(told.get("result", told.get("error")))
            return
        given = told["params"]
        match told["method"]:
            case "Page.loadEventFired":
                self.loaded.set()
            case "Network.requestWillBeSent":
                self.asked.append(given["request"]["url"])
            case "Runtime.exceptionThrown":
                self.faults.append(given["exceptionDetails"]["text"])
            case "Log.entryAdded" if given["entry"]["level"] == "error":
                entry = given["entry"]
                self.faults.append(f"{entry['text']} {entry.get('url', '')}")
            case "Runtime.consoleAPICalled" if given["type"] == "error":
                self.faults.append(str(given["args"]))
            case _:
                pass

    async def do(self, method: str, **given: Any) -> Any:
        """One command, and what it gives."""
        self._last += 1
        found = self._waiting[self._last] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": self._last, "method": method, "params": given})
        return await asyncio.wait_for(found, 60)

    async def look(self, url: str, width: str, picture: Path, *, light: str) -> list[str]:
        """Open a page at a width, take its picture, and say what is wrong with it."""
        self.faults, self.asked = [], []
        self.loaded.clear()
        wide, high = WIDTHS[width]
        size = {"width": wide, "deviceScaleFactor": 1, "mobile": width == "phone"}
        scheme = {"name": "prefers-color-scheme", "value": light}
        await self.do("Emulation.setEmulatedMedia", features=[scheme])
        await self.do("Emulation.setDeviceMetricsOverride", height=high, **size)
        await self.do("Page.navigate", url=url)
        await asyncio.wait_for(self.loaded.wait(), 60)
        await asyncio.sleep(0.15)  # the theme's script goes over the tables
        answer = await self.do("Runtime.evaluate", expression=_LOOK)
        seen = json.loads(answer["result"]["value"])
        tall = min(max(seen["tall"], high), _TALLEST)
        await self.do("Emulation.setDeviceMetricsOverride", height=tall, **size)
        shot = await self.do("Page.captureScreenshot", format="png")
        await asyncio.to_thread(picture.write_bytes, base64.b64decode(shot["data"]))
        host = url.split("/")[2]
        wrong = [f"console: {one}" for one in self.faults]
        wrong += [f"a picture is not there: {one}" for one in seen["broken"]]
        wrong += [f"wider than the page: {one}" for one in seen["out"]]
        wrong += ["it scrolls sideways"] if seen["scrolls"] else []
        wrong += [
            f"asks another host: {one}"
            for one in self.asked
            if not one.startswith(("data:", "blob:")) and one.split("/")[2] != host
        ]
        return wrong


def pages(word: str = "") -> list[str]:
    """The addresses of the site's pages, and its page for what is not there."""
    found = sorted(SITE.rglob("*.html"))
    names = [path.relative_to(SITE).as_posix().removesuffix("index.html") for path in found]
    return [name for name in names if word in _called(name)]


async def _served(stack: AsyncExitStack) -> str:
    async def page(request: web.Request) -> web.StreamResponse:
        path = SITE / request.path.strip("/")
        path = path / "index.html" if path.is_dir() else path
        return web.FileResponse(path) if path.is_file() else web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}"


async def browsed(stack: AsyncExitStack, program: str) -> Page:
    """A tab of a browser of its own, which ends with the stack."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    browser = await asyncio.create_subprocess_exec(
        program,
        *FLAGS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.push_async_callback(browser.wait)
    stack.callback(browser.terminate)
    port = Path(folder) / "DevToolsActivePort"
    for _ in range(300):
        if port.exists() and "\n" in port.read_text():
            break
        await asyncio.sleep(0.1)
    http = await stack.enter_async_context(ClientSession())
    where = f"http://127.0.0.1:{port.read_text().split()[0]}/json/list"
    async with http.get(where) as listed:
        tab = next(one for one in await listed.json() if one["type"] == "page")
    socket = await http.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
    page = Page(socket)
    hearing = asyncio.create_task(page.hear())
    stack.callback(hearing.cancel)
    for domain in ("Page", "Runtime", "Network", "Log"):
        await page.do(f"{domain}.enable")
    # The theme remembers which light it had last; every look is a first one.
    await page.do("Page.addScriptToEvaluateOnNewDocument", source="localStorage.clear()")
    return page


def _called(name: str) -> str:
    return name.strip("/").replace("/", "-") or "home"


async def main(folder: Path, word: str, program: str) -> int:
    """Look at every page; 1 where something is wrong."""
    wrong = 0
    async with AsyncExitStack() as stack:
        url = await _served(stack)
        browser = await browsed(stack, program)
        names = pages(word)
        looks = [(name, width, "light") for name in names for width in WIDTHS]
        looks += [(name, width, "dark") for name in names if name in DARK for width in WIDTHS]
        for name, width, light in looks:
            picture = folder / f"{_called(name)}-{width}{'-dark' if light == 'dark' else ''}.png"
            for fault in await browser.look(f"{url}/{name}", width, picture, light=light):
                wrong += 1
                sys.stdout.write(f"/{name} at {width}: {fault}\n")
    if not names:
        sys.stdout.write(f"no page has {word!r} in its name\n")
        return 1
    told = f"{wrong} faults" if wrong else "none scrolls sideways, asks elsewhere or complains"
    sys.stdout.write(f"{len(names)} pages at {len(WIDTHS)} widths in {folder}: {told}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    given = [*sys.argv[1:], "", ""]
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        sys.stdout.write("no Chromium here: the pages were built and not looked at\n")
        sys.exit(0)
    shots = Path(given[0] or "build/shots")
    shots.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(main(shots, given[1], found)))
