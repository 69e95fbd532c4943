"""Folds with a narrative, by a real model and in the background: the path, the counts, the cache.

The model is far too small for a narrative that would be believed: what it says is judged, and mostly
refused. `FOLDLINE_LAWS=deep` makes it 300 turns.
"""

import os
import re
from statistics import median

import pytest
from folding import settled
from summary_prompts import PROMPTS

import foldline
from foldline.core.edits.fold.handoff import PROSE
from foldline.core.log import Asked, Folded, UsageReported
from foldline.core.spine import Range
from foldline.models.clients import client
from foldline.models.retries import Patience
from foldline.models.summarize import Tellers
from foldline.session.turn import reply

TURNS = 300 if os.environ.get("FOLDLINE_LAWS") == "deep" else 9
NAME = "openai/smollm2"
pytestmark = [pytest.mark.real, pytest.mark.anyio]


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Heard:
    """A client whose answers are looked at."""

    def __init__(self, inner):
        self.inner, self.name, self.answers = inner, inner.name, []

    async def say(self, request, *, heard=None):
        """Ask, and remember."""
        answer = await self.inner.say(request, heard=heard)
        self.answers.append((request, answer["usage"]))
        return answer

    async def close(self):
        """Let go."""
        await self.inner.close()


async def test_folds_are_told_behind_the_conversation_by_a_real_model(narrow_server):
    """R-02, R-42, A-35: every request within the server's count, and questions read its cache."""
    url = f"{narrow_server.url}/v1"
    talking, telling = (Heard(client(NAME, base_url=url, api_key="none")) for _ in range(2))
    tellers = Tellers((telling,), Patience(tries=1), seconds=400.0, window=narrow_server.window)
    given = {"model": NAME, "window": narrow_server.window, "reserve": 64, "system": "Be brief."}
    async with foldline.aopen(":memory:", **given, summarizer=tellers) as s:
        for turn in range(TURNS):
            said = f"Turn {turn}: the run of suite_{turn % 7} printed nothing of note. "
            await s.add(said + "It took as long as it took before, and nobody waits for it. " * 8)
            await reply(s, talking, max_tokens=8)
        await settled(s, 400.0)
        events = await s.live.read_events(Range(0, s.live.view.head))
        last = s.live.narrator.last
    await talking.close()
    await telling.close()
    asked = [event for _, event in events if isinstance(event, Asked)]
    used = [event for _, event in events if isinstance(event, UsageReported)]
    folds = [event for _, event in events if isinstance(event, Folded)]
    pairs = [*zip(asked, used, strict=True)][3:]
    errors = sorted(abs(one.tokens / two.input - 1) for one, two in pairs)
    p95 = errors[int(len(errors) * 0.95) - 1]
    questions = [usage for _, usage in telling.answers]
    cached = [u.get("prompt_tokens_details", {}).get("cached_tokens", 0) for u in questions]
    behind = sum(len(request["messages"]) > 1 for request, _ in telling.answers)
    print(
        f"\n{TURNS} turns at {narrow_server.window}: {len(folds)} folds, {sum(bool(f.by) for f in folds)} told, "
        f"{len(questions)} questions, {behind} of them behind the conversation, of their "
        f"{median(u['prompt_tokens'] for u in questions):.0f} tokens {median(cached):.0f} cached (medians); "
        f"largest request {max(one.input + one.output for one in used)}, p95 error of the estimate {p95:.1%}; "
        f"the last narrative: {last.outcome}, {last.reason[:120]}"
    )
    assert len(used) == TURNS
    assert max(one.input + one.output for one in used) <= narrow_server.window
    assert all(
        u["prompt_tokens"] + u["completion_tokens"] <= narrow_server.window for u in questions
    )
    assert p95 <= 0.05
    assert folds
    assert behind
    assert sum(count > 0 for count in cached) > len(cached) / 2


BUILD = (
    "How does our build work?",
    (
        "The build runs in two steps. First it compiles src/main.c with gcc. Then it runs 42 tests in "
        "tests/run.sh. It takes 90 seconds on the old machine and 30 seconds on the new one. A build "
        "that fails is started once more. If it fails again, the pipeline stops and a message is sent "
        "to the channel."
    ),
    "And where do the logs go?",
    (
        "The logs go to build/log.txt. A failed test is listed in build/failed.txt. Both files are kept "
        "for 14 days, and then they are packed into build/old.tar. The nightly run writes to "
        "build/night.txt instead. Nothing is written to the console unless a test fails."
    ),
    "Thank you.",
    "You are welcome.",
    "What is next?",
    "The next release is 2.4.",
)


@pytest.mark.parametrize("name", ["bullets", pytest.param("compaction", marks=pytest.mark.long)])
async def test_a_papers_prompt_is_answered_by_a_real_model_and_installed(model_server, name):
    """M-1, P3-21, P5-16: even so small a model copies some true sentences, and only they stand."""
    told = Heard(client(NAME, base_url=f"{model_server.url}/v1", api_key="none"))
    tellers = Tellers(
        (told,), Patience(tries=1), seconds=400.0, template=PROMPTS[name],
        window=model_server.window, parameters={"temperature": 0},
    )  # fmt: skip
    given = {"model": "openai/other", "window": model_server.window, "reserve": 64}
    async with foldline.aopen(":memory:", **given, policy="classic", summarizer=tellers) as s:
        for turn, words in enumerate(BUILD):
            await s.add({"role": "assistant", "content": words} if turn % 2 else words)
        lost = await s.fold()
        shown = str((await s.request())["messages"])
        (record,) = await s.history.folds()
    await told.close()
    question = told.answers[0][0]["messages"][-1]["content"]
    assert question.startswith(PROMPTS[name].split("%s")[0])
    title, *lines = lost.summary.splitlines()
    print(f"\n{name}: {len(lost.left_out)} of {lost.answered} lines left out; {lines}")
    assert title == f"# {PROSE}"
    assert lines
    assert all(line in shown for line in lines)
    said = " ".join(BUILD)
    for word in re.findall(r"[\w./]*[\d/][\w./]*\w", "\n".join(lines)):
        assert word in said, "a number or a file from nowhere"
    assert record.model == NAME
    assert record.used.output > 0
