"""Look at the pages of `foldline ui` in a real browser, at three widths, light and dark.

    just pages shots                 all pages, into build/page-shots
    just pages shots FOLDER WORD     only those whose name holds a word
    just pages screens               the screens of docs/how-to/pages.md, into docs/pictures

Serves a made-up store on a free port and takes a picture of each page. Exits 1 on a page that
scrolls sideways, an error in the console, anything that is asked of another host, a page of more
than 300 kB, a violation that axe-core finds, and what the keyboard does not reach. Without
Chromium it says so and exits 0.
"""

import asyncio
import base64
import json
import re
import shutil
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import urlencode

import apsw
from make_long_session import make
from site_shots import NAMES, Page, browsed

import foldline
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

ROOT = Path(__file__).parents[1]
AXE = ROOT / ".rig" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PROGRAM = Path(sys.executable).with_name("foldline")
WIDTHS = (390, 800, 1440)
_HIGH, _TALLEST, _BYTES = 900, 3_000, 300_000
_SESSIONS = (
    ("refactor-the-parser", 60, 128_000, 7, "anna"),
    ("nightly-report", 6, 128_000, 3, "reports"),
    ("checkout-bug-4711", 14, 200_000, 5, "ben"),
    ("release-notes", 3, 128_000, 11, "anna"),
)
_HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> &lt;b&gt; \x1b[31mred\x1b[0m "
    "\u202etxet\u202c ]]> --> {{ 7 * 7 }} '\"`"
)
_SEEN = """(() => {
  const wide = document.documentElement.clientWidth;
  const inside = (node) => {
    for (let up = node.parentElement; up; up = up.parentElement)
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return true;
    return false;
  };
  const out = [...document.querySelectorAll('body *')].filter((node) =>
    node.getBoundingClientRect().right > wide + 1 && node.offsetParent && !inside(node)
    && getComputedStyle(node).position !== 'absolute');
  return JSON.stringify({
    scrolls: document.documentElement.scrollWidth > wide,
    tall: document.documentElement.scrollHeight,
    out: out.slice(0, 3).map((node) => node.outerHTML.slice(0, 90)),
    size: performance.getEntriesByType('navigation')[0].decodedBodySize,
    stops: [...document.querySelectorAll(
      'a[href],button,input:not([type=hidden]),select,summary,[tabindex="0"]')]
      .filter((node) => node.checkVisibility()).length,
    broken: [...document.images].filter((one) => one.complete && !one.naturalWidth)
      .map((one) => one.src)});
})()"""
_AXE = """axe.run(document,
  {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})
  .then((found) => JSON.stringify(found.violations.map((one) =>
    `${one.id}: ${one.help} (${one.nodes.length}) ${one.nodes[0].html.slice(0, 140)}`)))"""
_FOCUS = """(() => { const node = document.activeElement;
  window.__stops = window.__stops || new Set();
  if (node !== document.body) window.__stops.add(node);
  return window.__stops.size; })()"""


async def make_store(path: Path, *, hostile: bool = True) -> None:
    """A store as a small team has it, and one session whose every text is hostile."""
    store = store_at(str(path))
    for name, turns, window, seed, owner in _SESSIONS:
        await store.claim(Name("local", name), owner)
        await make(str(path), name=name, turns=turns, window=window, seed=seed)
    if hostile:
        await _make_hostile(path)
    await store.close()
    _spread_times(path)


async def _make_hostile(path: Path) -> None:
    async with await foldline.aopen(
        str(path), model="anthropic/claude-sonnet-4-5", session=f"hostile {_HOSTILE}"[:80]
    ) as session:
        await session.instruct(system=_HOSTILE)
        await session.add(_HOSTILE * 3)
        await session.request()
        await session.add({"role": "assistant", "content": _HOSTILE})
        await session.add(f"{_HOSTILE}\n{'x' * 200_000}")
        await session.request()


def _spread_times(path: Path) -> None:
    """Date the events as if people had worked for some days."""
    db = apsw.Connection(str(path))
    with db:
        for sid, head in db.execute("select sid, head from sessions order by sid").fetchall():
            end = time() - 4_000 * sid
            db.execute(
                "update events set time = ? - (? - seq) * 75.0 where sid = ?", (end, head, sid)
            )
            db.execute(
                "update sessions set changed = ?, opened = ? where sid = ?",
                (end, end - head * 75, sid),
            )
    db.close()


async def list_pages(path: Path) -> dict[str, str]:
    """The pages that are looked at, by the names of their pictures."""
    store, name = store_at(str(path)), "refactor-the-parser"
    head = await store.head(Name("local", name))
    names = [one.session for one in await store.sessions("local")]
    hostile = next((one for one in names if one.startswith("hostile")), "")
    await store.close()
    fold = head.edit.seq
    return {
        "sessions": "/",
        "sessions-none": _link("", q="nothing like it"),
        "session": _link("session", name=name, at=fold + 1),
        "session-before-fold": _link("session", name=name, at=fold - 1),
        "session-now": _link("session", name=name, at="now"),
        "session-hostile": _link("session", name=hostile),
        "original": _link("original", name=name, at=5),
        "original-hostile": _link("original", name=hostile, at=3),
        "edit": _link("edit", name=name, at=fold),
        "fold": _link("fold", name=name),
        "undo": _link("undo", name=name, at=fold),
        "pin": _link("pin", name=name, at=head.seq - 1),
        "what-if": _link("what-if", name="checkout-bug-4711"),
        "fleet": "/fleet",
        "fault": "/nothing",
    }


def _link(page: str, /, **given: object) -> str:
    return f"/{page}?{urlencode(given)}"


async def serve(stack: AsyncExitStack, path: Path, *options: str) -> tuple[str, str]:
    """`foldline ui` as a process: its address, and the one that signs a browser in."""
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "ui", "--store", path, *options, stdout=asyncio.subprocess.PIPE
    )
    stack.push_async_callback(process.wait)
    stack.callback(process.send_signal, signal.SIGINT)
    line = (await process.stdout.readline()).decode().strip()
    return re.sub("/enter.*", "", line), line


async def open_page(page: Page, url: str) -> None:
    """Open an address, and wait until it is there."""
    page.faults, page.asked = [], []
    page.loaded.clear()
    await page.do("Page.navigate", url=url)
    await asyncio.wait_for(page.loaded.wait(), 60)


async def ask_page(page: Page, script: str) -> Any:
    """What a script in the page says."""
    got = await page.do(
        "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
    )
    if "exceptionDetails" in got:
        raise AssertionError(got["exceptionDetails"])
    return got["result"].get("value")


async def set_size(page: Page, width: int, light: str, *, high: int = _HIGH) -> None:
    """Make the window as wide as that, in a light."""
    scheme = {"name": "prefers-color-scheme", "value": light}
    await page.do("Emulation.setEmulatedMedia", features=[scheme])
    size = {"width": width, "deviceScaleFactor": 1, "mobile": width < WIDTHS[1]}
    await page.do("Emulation.setDeviceMetricsOverride", height=high, **size)


async def take_picture(page: Page, path: Path) -> None:
    """Take a picture of what the window shows."""
    shot = await page.do("Page.captureScreenshot", format="png")
    await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


async def look(page: Page, url: str, width: int, light: str, picture: Path) -> list[str]:
    """Open a page, take its picture, and say what is wrong with it."""
    await set_size(page, width, light)
    await open_page(page, url)
    return await inspect(page, url, width, light, picture)


async def inspect(page: Page, url: str, width: int, light: str, picture: Path) -> list[str]:
    """Take the picture of the page that is open, and say what is wrong with it."""
    seen = json.loads(await ask_page(page, _SEEN))
    await set_size(page, width, light, high=min(max(seen["tall"], _HIGH), _TALLEST))
    await take_picture(page, picture)
    await set_size(page, width, light)
    host = url.split("/")[2]
    fine = "Failed to load resource: the server responded with a status of 404"
    wrong = [f"console: {one}" for one in page.faults if not one.startswith(fine)]
    wrong += [f"a picture is not there: {one}" for one in seen["broken"]]
    wrong += [f"wider than the page: {one}" for one in seen["out"]]
    wrong += ["it scrolls sideways"] if seen["scrolls"] else []
    wrong += [f"{seen['size']:,} bytes"] if seen["size"] > _BYTES else []
    wrong += [
        f"asks another host: {one}"
        for one in page.asked
        if not one.startswith("data:") and one.split("/")[2] != host
    ]
    if AXE.exists():
        await ask_page(page, AXE.read_text())
        wrong += json.loads(await ask_page(page, _AXE))
    if width == WIDTHS[-1] and light == "light":
        wrong += await _walk_by_keyboard(page, seen["stops"])
    return wrong


async def _walk_by_keyboard(page: Page, stops: int) -> list[str]:
    """Press Tab from the beginning; everything that can be used must be reached."""
    reached = 0
    for _ in range(stops + 3):
        for kind in ("rawKeyDown", "keyUp"):
            await page.do(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        reached = await ask_page(page, _FOCUS)
    return [] if reached >= stops else [f"the keyboard reaches {reached} of {stops}"]


async def compare(page: Page, url: str) -> None:
    """Press the button of the what-if page, and wait for its answer."""
    await open_page(page, url)
    page.loaded.clear()
    await ask_page(page, "document.querySelector('.policies button').click()")
    await asyncio.wait_for(page.loaded.wait(), 120)


SCREENS = {
    "pages-sessions": ("sessions", 1000, 620, "light"),
    "pages-session": ("session", 1000, 1180, "light"),
    "pages-edit": ("edit", 1000, 860, "dark"),
    "pages-what-if": ("compared", 1000, 1120, "light"),
    "pages-phone": ("session", 390, 900, "dark"),
}
"""The screens of the docs: the page, its width, its height, and its light."""


async def take_screens(folder: Path, program: str) -> int:
    """Take the screens of the docs."""
    async with AsyncExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "team.db"
        await make_store(made, hostile=False)
        url, entrance = await serve(stack, made, "--edit")
        page = await browsed(stack, program)
        await open_page(page, entrance)
        await asyncio.sleep(1.5)
        pages = await list_pages(made)
        for name, (shown, width, high, light) in SCREENS.items():
            await set_size(page, width, light, high=high)
            if shown == "compared":
                await compare(page, url + pages["what-if"])
            else:
                await open_page(page, url + pages[shown])
            await take_picture(page, folder / f"{name}.png")
            size = (folder / f"{name}.png").stat().st_size
            sys.stdout.write(f"{folder / name}.png: {size:,} bytes\n")
    return 0


async def main(folder: Path, word: str, program: str) -> int:
    """Look at every page; 1 where something is wrong."""
    wrong = count = 0
    if not AXE.exists():
        sys.stdout.write("axe-core is not here: `just pages` installs it\n")
    async with AsyncExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "team.db"
        await make_store(made)
        url, entrance = await serve(stack, made, "--edit")
        page = await browsed(stack, program)
        await open_page(page, entrance)
        await asyncio.sleep(1.5)  # the figures of the list are read
        pages = {**await list_pages(made), "compared": ""}
        for name, path in pages.items():
            if word not in name:
                continue
            if not path:
                await compare(page, url + pages["what-if"])
            for width in WIDTHS:
                for light in ("light", "dark"):
                    picture = folder / f"{name}-{width}{'-dark' if light == 'dark' else ''}.png"
                    if path:
                        faults = await look(page, url + path, width, light, picture)
                    else:
                        await set_size(page, width, light)
                        faults = await inspect(page, url, width, light, picture)
                    count += 1
                    for fault in faults:
                        wrong += 1
                        sys.stdout.write(f"{name} at {width}, {light}: {fault}\n")
    sys.stdout.write(f"{count} looks in {folder}: {wrong or 'no'} faults\n")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        sys.stdout.write("no Chromium here: the pages were not looked at\n")
        sys.exit(0)
    if sys.argv[1:2] == ["--screens"]:
        sys.exit(asyncio.run(take_screens(ROOT / "docs" / "pictures", found)))
    given = [*sys.argv[1:], "", ""]
    shots = Path(given[0] or "build/page-shots")
    shots.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(main(shots, given[1], found)))
