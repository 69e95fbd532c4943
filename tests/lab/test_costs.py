"""A session's bill: what two real ones cost, and each cause of a cold call by hand."""

import gzip
from functools import cache, partial

import msgspec
import pytest

from foldline.core.log import (
    Asked,
    Checkpointed,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Text, Tool
from foldline.core.prices import Prices
from foldline.importers import read
from foldline.importers.source import Mark
from foldline.lab.bill.cache import CacheRules, compute_bills, rules_for
from foldline.lab.bill.causes import (
    collect_call_contexts,
    collect_volatile_places,
    find_first_difference,
)
from foldline.lab.bill.costs import FOLDED, build_cost_report, sent_with_fronts
from foldline.lab.comparison import evaluate_contender
from foldline.lab.policy_run import AsRecorded
from foldline.lab.recorded import Recorded, convert_imported
from foldline.models.catalog import find

PAID = {"opus45": 42.60, "sonnet45": 30.33}
COLD = {"opus45": 6.70, "sonnet45": 14.26}
PRICES = Prices(1.0, 0.1, 1.25, 5.0)
RULES = CacheRules(PRICES, longer=3_600.0, dearer=2.0)


def rules_of(model):
    return rules_for(model, find(model).prices)


@cache
def pi(shared, name):
    with gzip.open(shared / "data" / f"pi_session_{name}.jsonl.gz", "rt") as file:
        recorded = convert_imported(read(file.read(), "pi.jsonl")[0])
    return build_cost_report(recorded, rules_of(recorded.model), by_model=rules_of)


@pytest.mark.parametrize("name", PAID)
def test_what_two_real_sessions_cost(shared, name):
    """To the cent, because the provider's own counts are the bill; and every cold call is named."""
    report = pi(shared, name)
    guessed = [one for one in report.cold if not one.sure]
    missed = [one for one in report.cold if one.cause == "missed"]
    print(f"\n{name}: ${report.total:.2f}, cold ${report.lost:.2f} in {len(report.cold)} calls")
    print(f"  guessed {len(guessed)}, without any explanation {len(missed)}")
    for one in report.causes:
        print(f"  {one.cause}{'' if one.sure else '?'}: {one.calls} calls, ${one.dollars:.2f}")
    assert report.total == pytest.approx(PAID[name], abs=0.005)
    assert report.lost == pytest.approx(COLD[name], rel=0.10)
    assert all(one.cause and one.told and one.dollars > 0 for one in report.cold)
    assert sum(one.dollars for one in report.causes) == pytest.approx(report.lost)
    parts = (report.new, report.read, report.again, report.output, report.aside)
    assert sum(parts) == pytest.approx(report.total)
    assert missed == []
    assert all(one.advice for one in report.causes)


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("opus45", {2: "too short", 4: "thinking", 175: "edit", 252: "expired", 293: "system"}),
        ("sonnet45", {6: "expired", 104: "system", 216: "restart", 228: "thinking", 273: "system"}),
    ],
)
def test_causes_that_were_looked_up_in_the_files(shared, name, causes):
    """By hand, from the raw records: 273's level was changed while it was being answered."""
    found = {one.call: one for one in pi(shared, name).cold}
    assert {call: found[call].cause for call in causes} == causes
    assert all(found[call].sure for call, cause in causes.items() if cause not in ("system", "restart"))  # fmt: skip


def test_a_longer_life_is_billed_again(shared):
    """Fewer expired calls, dearer writes: with an hour these sessions would have cost more."""
    report = pi(shared, "opus45")
    assert report.longer.calls == 1
    assert report.longer.paid == pytest.approx(report.total)
    assert report.longer.dollars == pytest.approx(47.47, abs=0.01)


# Sessions by hand: a front of 2,000 tokens, messages of some, each call 60 seconds after the last.


class Made:
    """A record in the making; tokens as the provider counted them."""

    def __init__(self, model="claude-sonnet-4-5"):
        self.events, self.times, self.marks = [], [], []
        self.now, self.cached, self.size = 1_000.0, 0, 2_000
        self.add(Opened(model))

    def add(self, *events, after=0.0):
        """Something happened."""
        self.now += after
        for event in events:
            self.events.append(event)
            self.times.append(self.now)
        return self

    def mark(self, kind, told):
        """The file says something beside the events."""
        self.marks.append(Mark(len(self.events), kind, told))
        return self

    def call(self, *, after=60.0, read=None, grown=4_000, user=True, took=5):
        """Somebody spoke, and the model answered."""
        said = (
            UserSaid((Text("word " * grown),)) if user else ToolReturned("c", (Text("x " * grown),))
        )
        self.add(said, after=after)
        self.size += grown
        read = self.cached if read is None else read
        counted = UsageReported(None, self.size, read, self.size - read, 10)
        self.add(ModelSaid((Call("c", "run"),)), counted, after=took)
        self.cached = self.size
        return self

    def done(self):
        """The record."""
        return Recorded("made", "claude-sonnet-4-5", tuple(self.events), tuple(self.times), tuple(self.marks))  # fmt: skip


def cold(made, rules=RULES):
    return [(one.call, one.cause, one.sure) for one in build_cost_report(made.done(), rules).cold]


OLD, NEW = (Instructed((Text(f"It is 12:0{at}."),), (Tool("run"),)) for at in range(2))
SETTINGS = partial(Asked, 0, "anthropic", "", 0)


@pytest.mark.parametrize(
    ("between", "cause"),
    [
        ([ModelSwitched("claude-opus-4-5")], "model"),
        ([NEW], "system"),
        ([Instructed(OLD.parts, (Tool("run"), Tool("walk")))], "tools"),
        ([Checkpointed("thinking", "high")], "thinking"),
        ([Checkpointed("compaction", "a summary"), Checkpointed("kept from", "5")], "edit"),
    ],
)
def test_what_is_on_record_is_the_cause(between, cause):
    made = Made().add(OLD, Checkpointed("thinking", "off")).call(grown=9_000).call(grown=9_000)
    made.add(*between).call(read=0)
    assert cold(made) == [(3, cause, True)]


def test_nothing_is_said_of_calls_that_found_their_cache():
    made = Made().add(OLD).call().add(NEW, ModelSwitched("another")).call().call()
    assert cold(made) == []


def test_what_changed_and_changed_back_is_no_cause():
    level = partial(Checkpointed, "thinking")
    made = Made().add(level("off")).call().add(level("low"), level("off")).call(read=0)
    assert cold(made) == [(2, "system", False)]


def test_a_level_is_taken_up_with_a_persons_message():
    """Changed in the middle of a turn it is no cause there, but is at the next turn."""
    made = Made().add(Checkpointed("thinking", "off")).call()
    made.add(Checkpointed("thinking", "high")).call(user=False, read=0).call(read=0)
    assert cold(made) == [(2, "missed", True), (3, "thinking", True)]


def test_parameters_of_our_own_requests_are_a_cause():
    made = Made().add(SETTINGS('{"thinking":{"budget_tokens":1000}}')).call()
    made.add(SETTINGS('{"thinking":{"budget_tokens":9000},"metadata":1}')).call(read=0)
    made.add(SETTINGS('{"thinking":{"budget_tokens":9000},"metadata":2}')).call(read=0)
    assert cold(made) == [(2, "thinking", True), (3, "system", False)]


def test_a_file_may_say_that_the_agent_was_started_anew():
    made = Made().call().mark("restart", "version 1 → 2").call(read=0)
    assert cold(made) == [(2, "restart", True)]


@pytest.mark.parametrize(("after", "cause"), [(290, "system"), (300, "expired")])
def test_a_life_is_counted_from_request_to_request(after, cause):
    """The five seconds of the first answer are part of it, the minute of the second is not."""
    made = Made().call().call(after=after, read=0, took=60)
    assert cold(made)[0][1] == cause


def test_a_file_may_say_how_long_its_cache_lives():
    made = Made().mark("life", "3600").call().call(after=900, read=0).call(after=4_000, read=0)
    assert [cause for _, cause, _ in cold(made)] == ["system", "expired"]
    report = build_cost_report(made.done(), RULES)
    assert report.again == pytest.approx((6_000 + 10_000) * 2.0 / 1e6)


def test_too_short_is_no_guess():
    made = Made().call(grown=1_000).call(read=0)
    assert cold(made, CacheRules(PRICES, least=4_096)) == [(2, "too short", True)]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ({"read": 0}, ("system", False)),
        ({"read": 0, "user": False}, ("missed", True)),
        ({"read": 3_000}, ("missed", True)),
        ({"read": 0, "grown": -500}, ("restart", False)),
        ({"read": 4_000, "grown": -500}, ("edit", False)),
        ({"read": 5_900}, None),
    ],
)
def test_what_counts_say_where_the_record_is_silent(call, found):
    assert cold(Made().call().call(**call)) == ([(2, *found)] if found else [])


def test_two_answers_at_once_are_two_processes():
    made = Made().call().call()
    twin = UsageReported(None, made.size, 0, made.size, 10)
    made.add(ModelSaid((Text("me too"),)), twin)
    assert cold(made) == [(3, "restart", False)]


def test_calls_that_were_broken_off_are_in_no_bill():
    made = Made().call()
    made.add(UserSaid((Text("go"),)), ModelSaid((), stop="cancelled"), UsageReported(input=0))
    made.add(Checkpointed("thinking", "x")).call()
    report = build_cost_report(made.done(), RULES)
    assert (report.calls, report.unbilled, report.cold) == (3, 1, ())


def test_a_record_without_any_cache_has_no_cold_calls():
    """Nothing is guessed where no cache was used, or none was counted; it is said instead."""
    made = Made().call().call()
    events = [
        UsageReported(None, one.input, output=10) if isinstance(one, UsageReported) else one
        for one in made.events
    ]
    report = build_cost_report(Recorded("made", "gpt-4o", tuple(events), tuple(made.times)), RULES)
    assert (report.cold, report.read) == ((), 0)
    assert report.again == pytest.approx(6_000 * 1.0 / 1e6)
    assert any("no call of this record read or wrote a cache" in note for note in report.notes)


def test_prices_by_hand():
    """10,000 tokens sent again at 1.25 instead of 0.1; a fold would have written fewer."""
    report = build_cost_report(Made().call(grown=28_000).call(read=0, grown=1_000).done(), RULES)
    (one,) = report.cold
    assert one.tokens == 30_000
    assert one.dollars == report.lost == pytest.approx(30_000 * 1.15 / 1e6)
    assert report.new == pytest.approx((30_000 + 1_000) * 1.25 / 1e6)
    assert report.again == pytest.approx(30_000 * 1.25 / 1e6)
    assert report.output == pytest.approx(20 * 5 / 1e6)
    assert report.folded.dollars == pytest.approx(FOLDED * 1.25 / 1e6)
    assert report.folded.paid == pytest.approx(report.again)


def test_an_hour_pays_where_pauses_are_the_cause():
    made = Made()
    for _ in range(9):
        made.call(after=900, read=0, grown=2_000)
    report = build_cost_report(made.done(), RULES)
    assert report.longer.calls == 8
    # By hand: the same tokens, of which only what is new is written, at twice the price.
    sizes = [4_000 + 2_000 * at for at in range(9)]
    new = (sizes[0] + 8 * 2_000) * 2.0
    assert report.longer.dollars == pytest.approx((new + sum(sizes[:-1]) * 0.1 + 90 * 5) / 1e6)
    assert "would have saved $" in report.causes[0].advice
    hour = build_cost_report(made.done(), CacheRules(PRICES, seconds=3_600))
    assert [one.cause for one in hour.cold] == ["system"] * 8


def test_without_counts_the_cache_is_simulated():
    """The same parts, from estimates: the second system prompt is the only thing that is cold."""
    made = Made().add(OLD).call().call().add(NEW).call().call(after=400)
    events = tuple(one for one in made.events if not isinstance(one, UsageReported))
    times = tuple(t for t, e in zip(made.times, made.events, strict=True) if e in events)
    recorded = Recorded("made", "claude-sonnet-4-5", events, times)
    report = build_cost_report(recorded, RULES)
    assert not report.counted
    assert [(one.call, one.cause) for one in report.cold] == [(3, "system"), (4, "expired")]
    billed = compute_bills(sent_with_fronts(recorded, collect_call_contexts(recorded)), RULES)
    assert report.total == pytest.approx(sum(one.dollars for one in billed))
    assert report.total == pytest.approx(report.new + report.read + report.again + report.output)


# Volatile bytes.


@pytest.mark.parametrize(
    ("old", "new", "kind", "shown"),
    [
        ("The time is 12:03:44 now.", "The time is 12:03:45 now.", "time", "12:03:4|5 now"),
        ("Now: 2026-11-15T09:59:59Z\n", "Now: 2026-11-15T10:00:00Z\n", "time", "15T|10:00:00Z"),
        ("at 9:59 am.", "at 10:00 am.", "time", "at |10:00 am"),
        ("epoch 1763686588646", "epoch 1763686588999", "time", "1763686588|999"),
        ("Date: 2026-11-15.", "Date: 2026-11-16.", "date", "2026-11-1|6."),
        ("Today is Sunday, Nov 15.", "Today is Monday, Nov 16.", "date", "is |Monday"),
        ("Today is 15 November 2026", "Today is 16 November 2026", "date", "1|6 November"),
        (
            "run 0b3c6f0e-58cc-4372-a567-0e02b2c3d479",
            "run 0b3c6f0e-58cc-4372-a567-0e02b2c3d47a",
            "id",
            "d47|a",
        ),
        ("branch tmp-a81bc81b", "branch tmp-a81bc99x", "id", "a81bc|99x"),
        ("You have 12 files.", "You have 13 files.", "counter", "1|3 files"),
        ("cwd: /home/ann/one", "cwd: /home/ann/two", "path", "/home/ann/|two"),
        ("- b\n- a\n", "- a\n- b\n", "order", "- |a ⏎ - b"),
        ("Be kind.", "Be kind. Be brief.", "more", "kind.| Be brief"),
        ("Be kind. Be brief.", "Be kind.", "less", "kind.|"),
        ("Be kind.", "Be rude.", "words", "Be |rude"),
    ],
)
def test_the_first_bytes_that_differ(old, new, kind, shown):
    found = find_first_difference(old, new)
    assert (found.kind, old[: found.offset]) == (kind, new[: found.offset])
    assert old[found.offset : found.offset + 1] != new[found.offset : found.offset + 1]
    assert shown in found.shown


def told(*fronts, origin=""):
    events = [Opened("m", origin=origin)]
    for front in fronts:
        events += [front, UserSaid((Text("go"),)), ModelSaid((Text("ok"),))]
    return collect_volatile_places(events)


def test_a_system_prompt_with_a_clock():
    """Each kind of change is told once, with how often it came."""
    clock = [Instructed((Text(f"You help. The time is 12:03:4{at}. Be kind."),)) for at in range(5)]
    (found,) = told(*clock, clock[-1])
    assert (found.where, found.kind, found.times, found.offset) == ("system", "time", 4, 29)
    assert found.shown == "…You help. The time is 12:03:4|1. Be kind.…"


@pytest.mark.parametrize(
    ("old", "new", "kind", "names"),
    [
        ("ab", "ba", "order", "b, a"),
        ("ab", "abc", "more", "c"),
        ("abc", "ab", "less", ""),
        ("ab", "ac", "words", "c"),
    ],
)
def test_tools_that_change(old, new, kind, names):
    fronts = (Instructed(tools=tuple(Tool(name) for name in some)) for some in (old, new))
    (found,) = told(*fronts)
    assert (found.where, found.kind, found.new) == ("tools", kind, names)


def test_the_order_of_keys_in_a_schema():
    one = {"type": "object", "properties": {}}
    schemas = (msgspec.json.encode(some).decode() for some in (one, dict(reversed(one.items()))))
    (found,) = told(*(Instructed(tools=(Tool("run", "", schema),)) for schema in schemas))
    assert (found.where, found.kind) == ("tools", "order of keys")


def test_instructions_of_a_file_that_only_grow_are_not_volatile():
    grown = Instructed((*OLD.parts, Text("More.")), OLD.tools)
    assert told(OLD, grown, origin="import:codex") == ()
    assert told(OLD, grown)[0].kind == "more"


def test_a_system_prompt_is_paid_once():
    """Without counts the bill is a simulation: of what a call was sent, and nothing twice."""
    said = tuple(
        event
        for n in range(5)
        for event in (UserSaid((Text(f"{n} " + "words " * 300),)), ModelSaid((Text("so " * 50),)))
    )
    front = Instructed((Text("Obey the house. " * 500),), (Tool("look", "sees", "{}"),))
    recorded = Recorded("made up", "m", (Opened("m"), front, *said))
    sizes = [
        one.read + one.written
        for one in compute_bills(sent_with_fronts(recorded, collect_call_contexts(recorded)), RULES)
    ]
    assert sizes == pytest.approx([call.estimate for call in recorded.calls])
    assert build_cost_report(recorded, RULES).total == pytest.approx(
        evaluate_contender(recorded, AsRecorded(recorded), RULES).dollars
    )
