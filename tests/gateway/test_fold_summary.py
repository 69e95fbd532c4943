"""M-2: a fold over HTTP answers with the summary that now stands, and what was left out of it."""

import pytest
from api_server import serving
from summary_prompts import EVENTS, FALSE, PROMPTS, TRUE, prose

from foldline.core.edits.fold.handoff import PROSE
from foldline.core.parts import text_of
from foldline.models.retries import Patience
from foldline.models.summarize import Tellers
from foldline.session.summaries import Preparing
from foldline.testing import ScriptedModel

LONG = "Many words are said here, and more of them, until there is something to fold. " * 40


def prepared_by(answer):
    async def prepare(live):
        teller = ScriptedModel(lambda _: answer)
        live.narrator = Preparing(
            Tellers((teller,), Patience(tries=1), template=PROMPTS["compaction"])
        )

    return prepare


@pytest.mark.parametrize("told", [True, False])
def test_a_fold_answers_with_its_summary(told):
    """P5-21, P1-31: the text, the number of lines left out and why; or why there is none."""
    answer = prose(TRUE[0], FALSE[0]) if told else ""
    said = ScriptedModel(lambda _: "I read it. I decided to use isocalendar.", name="scripted")
    with serving(model=said, prepare=prepared_by(answer)) as api:
        api.made("t", window=20_000)
        api.say("t", text_of(EVENTS[0].event.parts))
        for _ in range(4):
            api.say("t", LONG)
        preview = api.ok("POST", "/sessions/t/fold", {"preview": True})
        assert (preview["summary"], preview["left_out"], preview["no_summary"]) == ("", 0, "")
        folded = api.ok("POST", "/sessions/t/fold", {})
    assert folded["folded"]
    if told:
        assert folded["summary"] == f"# {PROSE}\n- {TRUE[0]}."
        assert folded["left_out"] == 1
        (why,) = folded["loss"]["left_out"]
        assert why.startswith("the number 14 does not occur in the events")
        assert folded["no_summary"] == ""
    else:
        assert (folded["summary"], folded["left_out"]) == ("", 0)
        assert folded["no_summary"] == "it was rejected: the answer is empty"
