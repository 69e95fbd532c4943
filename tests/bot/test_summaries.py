"""M-2: the bot's /compact sends the summary that now stands, then the new usage."""

import re

import pytest
from summary_prompts import EVENTS, FALSE, PROMPTS, TRUE, prose

from foldline.apps.bot.approval_cards import render_summary
from foldline.apps.bot.html import MOST, count_utf16_units
from foldline.core.edits.fold import Loss
from foldline.core.edits.fold.handoff import PROSE
from foldline.core.parts import text_of
from foldline.models.retries import Patience
from foldline.models.summarize import Tellers
from foldline.testing import ScriptedModel

WORDS = "The parser reads a line and says where it ends, and the tests say the same of it. "


@pytest.mark.anyio
async def test_compact_sends_the_summary_before_the_usage(desk):
    """P5-21, P5-22, P5-25: the usage before and after."""
    teller = ScriptedModel(lambda _: prose(TRUE[0], FALSE[0]))
    tellers = Tellers((teller,), Patience(tries=1), template=PROMPTS["aim"])
    desk.opening = {"window": 20_000, "summarizer": tellers}
    desk.model = ScriptedModel(lambda _: WORDS * 8)
    async with desk.running():
        for said in (text_of(EVENTS[0].event.parts), *(WORDS * 20,) * 4):
            before = len(desk.api.of("sendMessage"))
            await desk.ann.say(said)
            await desk.api.until(lambda n=before: len(desk.api.of("sendMessage")) > n)
            await desk.api.until(lambda: "📊 Context: " in desk.api.shown(7)[-1].text)
        await desk.ann.say("/compact")
        await desk.api.until(lambda: "◆ Context: " in desk.api.screen(7))
        texts = [one.text for one in desk.api.shown(7)][-2:]
    assert texts[0].startswith(f"◆ The summary that now stands:\n# {PROSE}\n- {TRUE[0]}.")
    assert "1 of 2 lines left out: not proven" in texts[0]
    usage = re.match(r"◆ Context: ([\d,]+)/20,000 .* → ([\d,]+)/20,000 ", texts[1])
    before, now = (int(one.replace(",", "")) for one in usage.groups())
    assert before > now > 0


def lost(**more):
    return Loss({}, (), (), 0, {}, 0, 0, 0, None, **more)


@pytest.mark.parametrize("line", ["- word " * 40, "- 🦔" * 500, "- " + "x" * 9_000])
def test_a_long_summary_fits_one_message(line):
    shown = render_summary(lost(summary="\n".join([line] * 90), left_out=("x",), answered=91))
    assert shown is not None
    assert count_utf16_units(shown.plain) <= MOST
    assert "more lines" in shown.plain
    assert shown.plain.endswith("1 of 91 lines left out: not proven")


def test_no_summary_is_said_with_its_reason():
    """P1-31."""
    assert render_summary(lost()) is None
    shown = render_summary(lost(no_summary="asking for it failed: <gone>"))
    assert shown is not None
    assert shown.plain == "◇ Without a summary, asking for it failed: <gone>"
    assert "<gone>" not in shown.html
