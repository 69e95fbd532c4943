"""Summaries that arrive (M-1, M-2): asked by a user's own prompt, installed by the fold, shown to who asked."""

import re

import pytest
from summary_prompts import ANSWERS, CITED, EVENTS, FALSE, PROMPTS, TRUE, prose, talked

import foldline
from foldline.core.edits.fold import Ask
from foldline.core.edits.fold.handoff import PROSE
from foldline.core.spine import Range, Spine
from foldline.dialects.provider_errors import Fault
from foldline.models.retries import Patience
from foldline.models.summarize import Piece, Tellers, request_narrative
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio
ASK = Ask(Spine(), Range(0, 6), 400)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def tellers(answer, template="", **more):
    script = answer if callable(answer) else lambda _: answer
    given = {"template": template} if template else {}
    return Tellers((ScriptedModel(script),), Patience(tries=1), **given, **more)


async def narrate(answer, template="", **more):
    return await request_narrative(ASK, EVENTS, tellers(answer, template), **more)


def opened(answer, template="", **more):
    given = {"model": "scripted", "window": 20_000, "reserve": 500, **more}
    return foldline.aopen(":memory:", **given, summarizer=tellers(answer, template))


@pytest.mark.parametrize("template", PROMPTS)
@pytest.mark.parametrize("answer", ["preamble", "bullets", "closing remark", "fenced"])
async def test_an_answer_to_a_papers_prompt_is_installed(answer, template):
    """P1-26, P3-21, P5-16: the true sentences stand in front of the model, the others do not."""
    async with opened(ANSWERS[answer], PROMPTS[template]) as s:
        await talked(s)
        lost = await s.fold()
        shown = str(await s.request())
        before, *behind = PROMPTS[template].split("%s")
        (asked,) = s.live.narrator.tellers.models[0].requests
    question = asked["messages"][-1]["content"]
    assert question.startswith(before)
    assert question.endswith("".join(behind))
    assert lost is not None
    assert lost.summary.startswith(f"# {PROSE}\n- ")
    for one in TRUE:
        assert one in lost.summary
        assert one in shown
    assert not [one for one in FALSE if one in lost.summary or one in shown]
    assert len(lost.left_out) == 3
    assert lost.answered == len(TRUE) + 3
    assert lost.describe_left_out() == "3 of 7 lines left out: not proven"


async def test_an_answer_to_our_own_prompt_is_installed_without_its_wrong_lines():
    """M-1: cited lines stay cited, an uncited one is left out, and the preamble is no fault."""
    cited = re.sub(r"\[(\d)\]", lambda seq: f"[{int(seq[1]) + 1}]", CITED)  # the log opens with one
    async with opened(f"Sure, here is the summary:\n\n{cited}\n\nLet me know!") as s:
        await talked(s)
        lost = await s.fold()
        assert s.live.narrator.last.asked == 1
        assert s.live.narrator.last.left_out == lost.left_out
    decided = "# Decisions and outcomes\n- The assistant decided to use isocalendar [log:6]"
    assert decided in lost.summary
    assert "14" not in lost.summary
    assert "approved" not in lost.summary
    assert "uncited" not in lost.summary
    assert lost.describe_left_out() == "3 of 7 lines left out: not proven"
    assert "'uncited, therefore left out' is not a line that cites its events" in lost.left_out


async def test_what_is_left_out_is_counted_and_the_reasons_are_known(caplog):
    """M-1: by `Narrative`, by a line of the log that quotes nobody, and by the fold's result."""
    caplog.set_level("INFO", logger="foldline.session")
    told = await narrate(prose(TRUE[0], FALSE[0], TRUE[1]), PROMPTS["aim"])
    assert (told.outcome, told.reason) == ("told", "")
    assert (
        told.left_out == told.prepared.left_out == ("the number 14 does not occur in the events",)
    )
    async with opened(prose(TRUE[0], FALSE[0], TRUE[1]), PROMPTS["aim"]) as s:
        await talked(s)
        await s.fold()
    lines = [one.getMessage() for one in caplog.records if "narrative" in one.getMessage()]
    assert lines == ["main: a narrative of scripted: 1 of 3 lines left out, not proven"]


async def test_the_better_of_two_answers_counts():
    """M-1: asked once more where less than half holds; a worse second answer spoils nothing."""
    poor = prose(TRUE[0], *FALSE[:3])
    for second, stands in ((prose(*TRUE), 4), ("Marvellous", 1), (poor, 1), (prose(*FALSE), 1)):
        answers = [second, poor]
        told = await narrate(lambda _, a=answers: a.pop(), PROMPTS["aim"])
        assert (told.outcome, told.asked) == ("told", 2)
        assert len(told.prepared.lines) == stands


async def test_an_answer_with_one_wrong_line_is_not_asked_for_again():
    told = await narrate(prose(*TRUE, FALSE[0]), PROMPTS["aim"])
    assert told.asked == 1


class Shelf:
    """Where pieces are kept, in a test."""

    def __init__(self):
        self.pieces = {}

    async def get(self, key):
        """What is there."""
        return self.pieces.get(key)

    async def put(self, key, piece):
        """Keep it."""
        self.pieces[key] = piece


async def test_a_kept_piece_knows_what_was_left_out_of_it():
    shelf = Shelf()
    first = await narrate(prose(*TRUE, FALSE[0]), PROMPTS["aim"], kept=shelf)
    again = await narrate("never asked", PROMPTS["aim"], kept=shelf)
    assert (again.reused, again.asked) == (1, 0)
    assert again.prepared.lines == first.prepared.lines
    assert again.left_out == first.left_out != ()
    assert Piece((), "x").left_out == ()  # as those that were kept before


NOTHING = {
    "no content": ("", "it was rejected: the answer is empty"),
    "a refusal": ("I'm sorry, but I can't.", "it was rejected: the answer is a refusal"),
    "a failure": (Fault("auth", "no such key"), "asking for it failed: "),
}


@pytest.mark.parametrize("case", NOTHING)
async def test_no_summary_is_told_with_its_reason(case):
    """P3-22, P1-31: the fold goes by facts alone, and its result says why."""
    answer, why = NOTHING[case]
    async with opened(answer, PROMPTS["bullets"]) as s:
        await talked(s)
        lost = await s.fold()
        shown = str(await s.request())
    assert lost is not None
    assert lost.summary == ""
    assert lost.no_summary.startswith(why)
    assert PROSE not in shown
    assert "Fix the date parser" in shown


async def test_without_a_summarizer_there_is_nothing_to_explain():
    async with foldline.aopen(":memory:", model="scripted", window=20_000, reserve=500) as s:
        await talked(s)
        lost = await s.fold()
    assert (lost.summary, lost.left_out, lost.no_summary) == ("", (), "")


async def test_the_users_words_stay_their_own():
    """Law 8: whatever the summarizer writes, the user's message stands verbatim beside it."""
    async with opened(prose(*TRUE), PROMPTS["compaction"], policy="confirm") as s:
        await talked(s)
        await s.fold()
        text = s.live.view.fold_at(s.edits[-1]).text
    assert text.startswith("[Conversation summary from compaction]: ")
    own = text[: text.index(f"# {PROSE}")]
    assert "Fix the date parser so that it accepts ISO weeks. Do not deploy to production." in own


async def test_a_summary_that_does_not_fit_is_shortened_by_whole_lines():
    long = prose(*(f"{TRUE[1]}, said in step {n}" for n in range(6)))
    async with opened(long, PROMPTS["aim"], window=6_000) as s:
        await talked(s)
        before = s.report.total
        lost = await s.fold()
        assert s.report.total < before
    for line in lost.summary.splitlines()[1:]:
        assert re.fullmatch(rf"- {re.escape(TRUE[1])}, said in step \d\.", line)


async def test_a_template_in_a_home_folder(tmp_path, monkeypatch):
    """P3-21: `file://~/…`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ask.txt").write_text(PROMPTS["bullets"])
    told = await narrate(ANSWERS["bullets"], "file://~/ask.txt")
    assert told.outcome == "told"
    missing = await narrate("x", "file://~nobody-of-this-name/ask.txt")
    assert (missing.outcome, "cannot be read" in missing.reason) == ("failed", True)
