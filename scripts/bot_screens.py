"""Take the pictures of docs/how-to/telegram.md anew: a real bot at the double, as on a telephone.

    .venv/bin/python scripts/bot_screens.py          # writes docs/pictures/telegram-*.{svg,png}

Answers are scripted, so that they read well; words, cards, buttons and numbers are the bot's own.
"""

import asyncio
import base64
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import resvg_py

import foldline
from foldline.agent.approval import Approvals
from foldline.agent.loop import Agent
from foldline.agent.tool import Intent, Tool, said
from foldline.apps.bot.approval_cards import Rules
from foldline.apps.bot.bot_api import BotCalls, CallPace, bot_of
from foldline.apps.bot.bot_server import Telegram
from foldline.core.policy import named
from foldline.draw.svg import escape_xml
from foldline.stores.open_store import store_at
from foldline.testing import ScriptedModel

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from fake_telegram import BotApi

ROOT = Path(__file__).parents[1] / "docs" / "pictures"
WIDE, EDGE, ROW = 450, 14, 19
INSIDE = WIDE - 40 - 28  # of a message that is as wide as can be
MOST, PICTURE = 12, 218  # lines of a message; pixels of a picture
WIDTHS = ((" ijlIftr.,:;'!|()[]/-", 4.7), ("mwMW%@→◆⚠", 12.2), ("0123456789$", 8.6))
LONG = "It stays as we agreed: errors name the place, and nothing is dropped without words. " * 9
SHORT = """`peek()` returns `None` at the end of the input:

1. return `END`
2. let `expect()` name what it found"""
ASK = "Does anything else depend on it? Look at the reader, the writer and the checks once more."
SANS = "system-ui, 'Segoe UI', Roboto, Arial, 'DejaVu Sans', sans-serif"


def wide_of(words):
    """How wide a line is, about: no font is at hand to ask."""
    return sum(
        next((size for some, size in WIDTHS if one in some), 9.2 if one.isupper() else 8.35)
        for one in words
    )


def wrapped(line):
    """A line in as many as it takes."""
    rows = [""]
    for word in line.split(" "):
        longer = f"{rows[-1]} {word}" if rows[-1] else word
        if wide_of(longer) <= INSIDE or not rows[-1]:
            rows[-1] = longer
        else:
            rows.append(word)
    return rows


def screen(api, chat, first):
    """A chat as SVG: what was written right, what the bot says left, buttons below."""
    body, y = [], EDGE
    for one in api.shown(chat)[first:]:
        lines = [row for line in one.text.split("\n") for row in wrapped(line)]
        if len(lines) > MOST:
            lines = [*lines[:5], "…", *lines[-4:]]
        rows = one.message.get("reply_markup", {}).get("inline_keyboard", [])
        labels = [[button["text"] for button in row] for row in rows]
        least = max([(wide_of(max(row, key=wide_of)) + 24) * len(row) for row in labels], default=0)
        wide = min(max(max(map(wide_of, lines)) + 28, least), WIDE - 40)
        image = ""
        if one.photo:
            wide, high = WIDE - 40, PICTURE
            picture = base64.b64encode(one.photo).decode()
            image = (
                f'<image x="{EDGE + 8}" y="{y + 8}" width="{wide - 16}" height="{high}" '
                f'href="data:image/png;base64,{picture}" preserveAspectRatio="xMinYMin meet"/>'
            )
        top = y + (PICTURE + 8 if image else 0)
        high = len(lines) * ROW + 16 + (PICTURE + 8 if image else 0)
        x = EDGE if one.by_bot else WIDE - wide - EDGE
        fill = "#ffffff" if one.by_bot else "#dcf2c8"
        body.append(f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="12" fill="{fill}"/>')
        body.append(image)
        for at, line in enumerate(lines):
            body.append(_text(x + 14, top + 24 + at * ROW, line, ink="#1f2328"))
        y += high + 6
        for row in rows:
            each = (wide - 6 * (len(row) - 1)) / len(row)
            for at, button in enumerate(row):
                left = x + at * (each + 6)
                body.append(
                    f'<rect x="{left}" y="{y}" width="{each}" height="32" rx="8" '
                    'fill="#6b8ba4" fill-opacity="0.75"/>'
                )
                label = button["text"]
                body.append(_text(left + each / 2, y + 21, label, ink="#ffffff", middle=True))
            y += 38
        y += 4
    inside = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{y + EDGE}">'
        f'<rect width="{WIDE}" height="{y + EDGE}" rx="12" fill="#b8cfd9"/>\n{inside}\n</svg>\n'
    )


def _text(x, y, words, *, ink, middle=False):
    anchor = ' text-anchor="middle"' if middle else ""
    mark = ""
    if words.startswith("📊"):  # few servers have a font with it
        bars = ((0, 6, "#5aa55a"), (5, 11, "#d6543f"), (10, 8, "#4a7fc1"))
        mark = "".join(
            f'<rect x="{x + left}" y="{y - high + 1}" width="4" height="{high}" fill="{fill}"/>'
            for left, high, fill in bars
        )
        words, x = words[1:].lstrip(), x + 19
    return mark + (
        f'<text x="{x}" y="{y}" font-family="{SANS}" font-size="13.5" fill="{ink}"{anchor} '
        f'xml:space="preserve">{escape_xml(words)}</text>'
    )


def write(name, drawing):
    """Both forms of a picture."""
    (ROOT / f"telegram-{name}.svg").write_text(drawing, encoding="utf-8")
    pixels = resvg_py.svg_to_bytes(svg_string=drawing, zoom=2)
    (ROOT / f"telegram-{name}.png").write_bytes(bytes(pixels))


async def main():  # noqa: PLR0915 - a story
    """Talk, fold, look, approve; and draw."""

    async def run(_):
        return said("12 passed")

    intent = Intent(
        "run pytest -q tests/parser", "cd /project\npytest -q tests/parser", ("shell: pytest *",)
    )
    shell = Tool(
        name="shell", description="run", schema={"type": "object"}, run=run, intent=lambda _: intent
    )
    call = {"id": "c0", "type": "function", "function": {"name": "shell", "arguments": "{}"}}

    def answer(request):
        last = str(request["messages"][-1]["content"])
        if "run the tests" in last:
            return {"content": None, "tool_calls": [call]}
        if "12 passed" in last:
            return "All **12** tests of the parser pass."
        return LONG if last == ASK else SHORT

    folder = Path(tempfile.mkdtemp())
    address = str(folder / "bot.db")
    model = ScriptedModel(answer)

    @asynccontextmanager
    async def seats(name):
        policy = replace(named("confirm"), soft=0.55)
        async with foldline.aopen(
            address, session=name, model="scripted", window=8_000, policy=policy
        ) as one:
            approvals = Approvals(one.live.store, "local", root=folder, ask=None)
            agent = Agent(one, model, tools=[shell], approve=approvals)
            yield SimpleNamespace(agent=agent, models=None, approvals=approvals)

    async with BotApi() as api:
        ann = api.person(7, "Ann")
        pace = CallPace(chat=0.0, stream=0.05, again=0.05, reading=5.0)
        line = BotCalls(bot_of(api.token, base_url=api.url, pace=pace), pace=pace)
        store = store_at(address)
        bot = Telegram(
            line, seats=seats, store=store, tenant="local", rules=Rules(admins=(7,)), tell=print
        )
        await bot.start_bot()
        polling = asyncio.create_task(bot.poll_updates())

        async def told(words, count=1):
            await api.until(lambda: api.screen(7).count(words) >= count, 30)
            await asyncio.sleep(0.2)

        await ann.say("Why do the parser tests fail?")
        await told("📊")
        await ann.say("Please run the tests of the parser.")
        await told("Allow it?")
        write("approve", screen(api, 7, 0))
        await ann.press(api.shown(7)[-1], "Yes, once")
        await told("📊", 2)
        count = 2
        while "⚠ Context" not in api.screen(7):
            count += 1
            first = len(api.shown(7))
            await ann.say(ASK)
            await told("📊", count)
        card = api.shown(7)[-1]
        await ann.press(card, "Preview")
        await told("nothing was changed")
        await ann.press(api.shown(7)[-1], "Compact")
        await told("◆ Context:")
        write("fold", screen(api, 7, first))
        first = len(api.shown(7))
        await ann.say("/context")
        await api.until(lambda: any(one.photo for one in api.shown(7)), 30)
        await ann.say("/tokens")
        await told("Context Usage:")
        write("context", screen(api, 7, first))
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await bot.close()
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
