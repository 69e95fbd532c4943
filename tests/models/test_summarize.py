"""Narratives: the cheaper way, what is proven, what is kept, and an outcome whatever is answered."""

import asyncio
import json
import re
import time
from pathlib import Path

import pytest

from foldline.core.edits.fold import Ask
from foldline.core.log import Logged
from foldline.core.prices import Prices
from foldline.core.spine import Range, Spine
from foldline.core.tokens import count_tokens
from foldline.dialects.provider_errors import Fault
from foldline.errors import Spent
from foldline.models.clients import client
from foldline.models.retries import Patience
from foldline.models.summarize import SentPrefix, Tellers, request_narrative
from foldline.testing import ScriptedModel, calls, model, result, user
from foldline.testing.provider import Provider, Trouble

pytestmark = pytest.mark.anyio
QUICK = Patience(tries=1, call=1.5, whole=3.0)
ONCE = Patience(tries=1, call=60.0)
KEY = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
EVENTS = [
    Logged(seq, event)
    for seq, event in enumerate(
        (
            user("Never touch the vendor folder."),
            calls("c1", text="I look at the parser."),
            result("c1", "src/parser.py has 214 lines " + "def parse(text): ... " * 60),
            model("The parser fails on empty input because parse() reads the first token."),
            user("Then guard it."),
            model("I guard parse() against empty input. " + "It reads one token less. " * 60),
        )
    )
]
ASK = Ask(Spine(), Range(0, 5), 400)
PRICES = Prices(3.0, 0.3, 3.75, 15.0)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def first_words(request):
    """Tells every event of the user's that it is shown, in the user's own words."""
    text = request["messages"][-1]["content"]
    fenced = re.findall(r'<event (\d+) from="user">\n(.*?)\n</event>', text, re.DOTALL)
    listed = re.findall(r"^(\d+) user: (.*)$", text, re.MULTILINE)
    lines = [f"- {' '.join(words.split()[:14])} [{seq}]" for seq, words in fenced or listed]
    return "## The user's goals and preferences\n" + "\n".join(lines) if lines else "none"


def prefix_of(name="scripted", **changes):
    request = {
        "model": name,
        "stream": True,
        "max_tokens": 9_000,
        "messages": [{"role": "user", "content": "hello"}],
    }
    facts = {"tokens": 900, "window": 100_000, "prices": PRICES, "warm": True} | changes
    return SentPrefix(request, name, **facts)


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


async def test_pieces_are_within_the_tellers_own_window():
    """R-02: many questions, each with room for its answer; every line proven and cited."""
    teller = ScriptedModel(first_words, window=1_400)
    told = await request_narrative(ASK, EVENTS, Tellers((teller,), window=1_400))
    assert (told.outcome, told.form) == ("told", "pieces")
    assert len(teller.requests) == told.asked > 1
    for request in teller.requests:
        (message,) = request["messages"]
        assert count_tokens(message["content"]) + request["max_completion_tokens"] <= 1_400
    assert told.prepared.by == "scripted"
    assert [line.seqs for line in told.prepared.lines] == [(0,), (4,)]
    assert told.used.input > 0


async def test_the_conversations_own_prefix_is_asked_where_that_is_cheaper():
    """What was sent, then one question; not as a stream, with a bound of its own."""
    teller = ScriptedModel(first_words)
    before = prefix_of()
    told = await request_narrative(ASK, EVENTS, Tellers((teller,)), prefix=before)
    assert (told.outcome, told.form, told.asked) == ("told", "prefix", 1)
    (request,) = teller.requests
    assert request["messages"][:-1] == before.request["messages"]
    assert "stream" not in request
    assert "max_tokens" not in request
    assert request["max_completion_tokens"] == ASK.tokens * 3 // 2
    assert [line.seqs for line in told.prepared.lines] == [(0,), (4,)]


@pytest.mark.parametrize(
    "changes",
    [{"tokens": 99_900}, {"tokens": 20_000}, {"warm": False}, {"name": "another"}],
    ids=["it would not fit", "it is dearer", "the cache is cold", "another model is asked"],
)
async def test_else_pieces_are_told(changes):
    told = await request_narrative(
        ASK, EVENTS, Tellers((ScriptedModel(first_words),)), prefix=prefix_of(**changes)
    )
    assert (told.outcome, told.form) == ("told", "pieces")


async def test_a_prefix_that_is_refused_as_too_large_is_told_in_pieces():
    answers = [Fault("tokens", "too long", limit=10, count=20)]

    def script(request):
        return answers.pop() if answers else first_words(request)

    told = await request_narrative(
        ASK, EVENTS, Tellers((ScriptedModel(script),)), prefix=prefix_of()
    )
    assert (told.outcome, told.form, told.asked) == ("told", "pieces", 2)


async def test_no_secret_reaches_a_teller_or_comes_back():
    """R-70: struck on the way out and in the answer, and a match aborts nothing."""
    events = [*EVENTS, Logged(6, result("c2", f"export TOKEN={KEY}"))]
    ask = Ask(Spine(), Range(0, 6), 400)

    def leaking(request):
        return f"{first_words(request)}\n## Facts, numbers and references\n- TOKEN is {KEY} [6]"

    teller = ScriptedModel(leaking)
    told = await request_narrative(ask, events, Tellers((teller,)), prefix=prefix_of())
    assert told.form == "pieces"  # the prefix would have shown it
    assert KEY not in str(teller.requests)
    assert "TOKEN" in str(teller.requests)
    assert KEY not in str(told)
    assert told.outcome in ("told", "rejected")


async def test_the_next_teller_is_asked_where_one_fails():
    """R-52."""
    bad = ScriptedModel(lambda _: Fault("overloaded", "no"), name="first")
    good = ScriptedModel(first_words, name="second")
    told = await request_narrative(ASK, EVENTS, Tellers((bad, good), QUICK), prefix=None)
    assert (told.outcome, told.prepared.by, told.asked) == ("told", "second", 2)


async def test_finished_pieces_are_not_told_again():
    """R-51: a deadline ends it, and what was told by then is there the next time."""
    shelf, answers = Shelf(), []

    def one_only(request):
        answers.append(request)
        return first_words(request) if len(answers) == 1 else Trouble.TIMEOUT

    tellers = Tellers((ScriptedModel(one_only, window=1_400),), seconds=1.5, window=1_400)
    late = await request_narrative(ASK, EVENTS, tellers, kept=shelf)
    assert late.outcome == "failed"
    assert "1.5 s" in late.reason
    assert len(shelf.pieces) == 1
    again = ScriptedModel(first_words, window=1_400)
    told = await request_narrative(ASK, EVENTS, Tellers((again,), window=1_400), kept=shelf)
    assert (told.outcome, told.reused) == ("told", 1)
    whole = await request_narrative(
        ASK, EVENTS, Tellers((ScriptedModel(first_words),), window=1_400)
    )
    assert len(again.requests) == whole.asked - 1
    assert told.prepared.lines == whole.prepared.lines


async def test_a_cancelled_narrative_ends_at_once(timed):
    """R-53."""
    task = asyncio.create_task(
        request_narrative(ASK, EVENTS, Tellers((ScriptedModel(lambda _: Trouble.TIMEOUT),)))
    )
    await asyncio.sleep(0.05)
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert time.monotonic() - begun < timed(1)


async def test_focus_and_template_reach_every_question():
    """R-78, A-34."""
    for window, prefix in ((1_400, None), (100_000, prefix_of())):
        teller = ScriptedModel(first_words)
        tellers = Tellers((teller,), template="Sum up:\n{sections}\n{{}}", window=window)
        ask = Ask(Spine(), Range(0, 5), 400, focus="the vendor folder")
        await request_narrative(ask, EVENTS, tellers, prefix=prefix)
        for request in teller.requests:
            text = request["messages"][-1]["content"]
            assert text.startswith("Sum up:\n## Decisions")
            assert "Keep above all: the vendor folder" in text


async def test_a_cap_is_no_error():
    """R-49: the fold goes without."""

    class Empty:
        async def before(self, *_):
            raise Spent("session", spent=5, would=1, limit=5, unit="dollars")

    told = await request_narrative(ASK, EVENTS, Tellers((ScriptedModel(),)), purse=Empty())
    assert told.outcome == "skipped"
    assert "cap per session" in told.reason


@pytest.mark.parametrize("name", ["openai/m", "claude-m"])
@pytest.mark.parametrize("trouble", Trouble)
async def test_ten_troubles_over_http(trouble, name):
    """R-31: an outcome and a reason, whatever becomes of the answer."""
    with Provider(lambda _: trouble) as provider:
        one = client(
            name, base_url=f"{provider.url}/v1"[: None if name[0] == "o" else -3], api_key="k"
        )
        late = trouble in (Trouble.TIMEOUT, Trouble.STALE)
        tellers = Tellers((one,), QUICK, seconds=6.0) if late else Tellers((one,), ONCE)
        told = await request_narrative(ASK, EVENTS, tellers)
        await one.close()
    assert told.prepared is None
    assert told.reason
    way = (Trouble.TIMEOUT, Trouble.RATE, Trouble.ERROR, Trouble.CUT)
    wanted = ("failed",) if trouble in way else ("rejected",)
    assert told.outcome in (("failed", "rejected") if trouble is Trouble.STALE else wanted), told


async def test_one_that_never_answers_leaves_time_for_the_next():
    """R-52."""
    first = ScriptedModel(lambda _: Trouble.TIMEOUT, name="first")
    tellers = Tellers((first, ScriptedModel(first_words, name="second")), seconds=3.0)
    told = await request_narrative(ASK, EVENTS, tellers)
    assert (told.outcome, told.prepared.by) == ("told", "second")


async def test_no_piece_of_a_key_is_left_by_a_cut():
    """R-70: struck first, cut then."""
    lines = ["MIIEpAIBAAKCAQEA" + f"{n:03}" + "kL9" * 15 for n in range(36)]
    marks = ("-----BEGIN RSA " + "PRIVATE KEY-----", "-----END RSA " + "PRIVATE KEY-----")
    pem = "\n".join((marks[0], *lines, marks[1]))
    events = [*EVENTS, Logged(6, result("c2", f"{pem}\n{'padding of it ' * 400}\n{pem}"))]
    teller = ScriptedModel(first_words)
    await request_narrative(
        Ask(Spine(), Range(0, 6), 400), events, Tellers((teller,), window=2_500)
    )
    assert teller.requests
    assert not [line for line in lines if line in str(teller.requests)]


@pytest.mark.parametrize("own", ["thinking", "tool_choice", "stop_sequences"])
async def test_a_turns_own_parameters_are_not_asked_with(own):
    before = prefix_of()
    before.request[own] = {"type": "any"}
    teller = ScriptedModel(first_words)
    told = await request_narrative(ASK, EVENTS, Tellers((teller,)), prefix=before)
    assert (told.outcome, told.form) == ("told", "pieces")
    assert own not in str(teller.requests)


async def test_what_may_have_been_worked_on_is_paid_for():
    """R-49: silence is counted as it was estimated; a refusal costs nothing."""

    class Counting:
        def __init__(self):
            self.held, self.paid, self.free = [], [], []

        async def before(self, _, tokens_in, tokens_out):
            self.held.append((tokens_in, tokens_out))
            return len(self.held)

        async def after(self, held, used):
            self.paid.append((held, used))

        async def release(self, held):
            self.free.append(held)

    for trouble, free in ((Trouble.TIMEOUT, 0), (Trouble.ERROR, 1)):
        purse, teller = Counting(), ScriptedModel(lambda _, t=trouble: t)
        await request_narrative(ASK, EVENTS, Tellers((teller,), QUICK, seconds=5.0), purse=purse)
        assert (len(purse.free), len(purse.paid)) == (free, 1 - free)
        assert purse.held[0][1] == teller.requests[0]["max_completion_tokens"]


INJECTIONS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "injections.jsonl").read_text().splitlines()
]


async def test_no_injection_passes_through_a_teller_that_obeys_it():
    """R-72 on the whole path: 86 tool outputs, each repeated by a real server as goal and decision."""
    passed = []

    def obeying(request):
        text = request["messages"][-1]["content"]
        seq, words = re.search(
            r'<event (\d+) from="tool">\n(.*?)\n</event>', text, re.DOTALL
        ).groups()
        line = " ".join(words.split())
        return f"## The user's goals and preferences\n- {line} [{seq}]\n## Decisions and outcomes\n- {line} [{seq}]"

    with Provider(obeying) as provider:
        one = client("openai/m", base_url=f"{provider.url}/v1", api_key="k")
        for payload in INJECTIONS:
            events = [EVENTS[0], EVENTS[1], Logged(2, result("c1", payload["text"])), *EVENTS[3:5]]
            told = await request_narrative(
                Ask(Spine(), Range(0, 4), 400), events, Tellers((one,), ONCE)
            )
            passed += [payload["id"]] if told.prepared else []
            assert told.outcome == "rejected" or told.prepared, (payload["id"], told)
        await one.close()
    assert passed == []


async def test_a_template_in_a_file(tmp_path):
    """A-34."""
    path = tmp_path / "ask.txt"
    path.write_text("Tell it my way.\n{sections}\n{focus}")
    teller = ScriptedModel(first_words)
    told = await request_narrative(ASK, EVENTS, Tellers((teller,), template=path.as_uri()))
    assert told.outcome == "told"
    assert teller.requests[0]["messages"][0]["content"].startswith("Tell it my way.\n## Dec")
    missing = await request_narrative(ASK, EVENTS, Tellers((teller,), template=f"{path.as_uri()}x"))
    assert missing.outcome == "failed"
    assert "ask.txtx" in missing.reason
