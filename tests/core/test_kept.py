"""What survives folds: the user's constraints, pins, facts; and what is never claimed."""

import gzip
import hashlib
import json
import re
from dataclasses import replace
from itertools import cycle, islice

import msgspec
import pytest
from law_checks import HANDLE

import foldline
from foldline.core import ledger, log, recall, rules
from foldline.core.budget import limits
from foldline.core.edits import fold
from foldline.core.edits.fold.verify import Accepted, Rejected, Repair, verify_answer
from foldline.core.edits.mask import exclude_events
from foldline.core.log import (
    Folded,
    Instructed,
    Interrupted,
    Logged,
    ModelSaid,
    Pinned,
    ToolReturned,
)
from foldline.core.names import format_handle
from foldline.core.parts import Call, Text, calls_of, text_of
from foldline.core.plan import Facts, Ready, lost
from foldline.core.policy import PRESETS, SLIDING, STEADY, THRIFTY
from foldline.core.prices import Prices
from foldline.dialects import openai_chat as wire
from foldline.errors import BadHandle
from foldline.testing import Conversation, Planned, calls, model, result, user

PRICED = Prices(3.0, 0.30, 3.75, 15.0)
TELLERS = {
    "ok": lambda _: "ok",
    "lossy": lambda prompt: f"## State changes\n- Work went on. [{prompt.range.lo}]",
    "silent": lambda _: "",
}


class Told(Planned):
    """A conversation whose plans' wishes for a narrative are put to a scripted teller."""

    def __init__(self, facts, *events, teller="ok"):
        super().__init__(facts, *events)
        self.teller, self.verdicts = TELLERS[teller], []

    def step(self, *events):
        """Take events in, plan, ask the teller what the plan wants to know, send."""
        self.add(*events)
        made = self.plan()
        assert isinstance(made, Ready), made
        self.ask(made)
        self.facts = replace(self.facts, prepared=None)
        if made.ask is not None:
            self.facts = replace(self.facts, prepared=self.tell(made.ask))
        return made

    def tell(self, ask):
        """What the teller's answers come to, by the rules of the judge."""
        events = fold.select_source_events(dict(enumerate(self.events)), ask.range, ())
        lines = []
        for prompt in fold.build_prompts(ask, events, window=32_000, reserve=2_000):
            verdict = verify_answer(prompt, self.teller(prompt), events)
            if isinstance(verdict, Repair):
                again = self.teller(verdict.prompt)
                verdict = verify_answer(verdict.prompt, again, events, again=True)
            self.verdicts.append(verdict)
            lines += verdict.lines if isinstance(verdict, Accepted) else ()
        return fold.Prepared(ask.base, ask.range, tuple(lines), "scripted") if lines else None

    def sight(self):
        """All that the model is shown."""
        view = self.view
        parts = (view.instructions.parts, *(item.parts for item in (*view.items, *view.waiting)))
        return "\n".join(text_of(part) for part in parts)

    def recalled(self, seq):
        """Whether an event is one recall away: by a handle in sight that covers it."""
        handles = HANDLE.findall(self.sight())
        if not any(int(lo) <= seq <= int(hi or lo) for lo, hi in handles):
            return None
        return recall.render_recall([Logged(seq, self.events[seq])])


def runs(recorded):
    """Recorded runs as turns of events: what a person asks, then groups."""
    for run in recorded("swe_agent_demo_trajs.jsonl.gz"):
        yield user(run["history"][1]["content"][:3_000])
        for n, step in enumerate(run["trajectory"]):
            arguments = msgspec.json.encode({"command": step["action"]}).decode()
            yield ModelSaid((Text(step["thought"]), Call(f"c{n}", "bash", arguments)))
            yield ToolReturned(f"c{n}", (Text(step["observation"]),))
        yield model("That is done.")


def chats(shared):
    """Recorded chats of an airline's desk, one after the other."""
    with gzip.open(shared / "data/tau_bench_gpt4o_airline.json.gz", "rt") as file:
        for chat in json.load(file)[:60]:
            for message in chat["traj"]:
                if message["role"] != "system":
                    yield wire.parse_message(message)


def live(talk, events, folds):
    """Go on with recorded work until there were so many folds."""
    for event in cycle(events):
        if isinstance(event, ModelSaid):
            talk.add(event)
        else:
            talk.step(event)
        if len(talk.folds()) >= folds and not talk.view.open:
            return
    raise AssertionError


CONSTRAINTS = 15


@pytest.mark.parametrize("policy", ["steady", "thrifty", "classic", "window"])
def test_constraints_after_ten_folds(shared, recorded, policy):
    """Law 8, DESIGN §11: 15 side constraints stated once, verbatim after 10 folds at 128k."""
    said = [
        one["sssc"]
        for one in json.loads((shared / "data/compint_side_constraints.json").read_text())
    ]
    assert len(said) == CONSTRAINTS
    work = list(runs(recorded))
    talk = Told(
        Facts(limits(128_000, None), PRESETS[policy], PRICED), Instructed((Text("Be exact."),))
    )
    for event, constraint in zip(islice(work, 0, None, 6), said, strict=False):
        talk.step(user(constraint))
        talk.add(model("Understood."))
        talk.step(user(text_of(event.parts)[:400]))
        talk.add(model("Yes."))
    live(talk, work, 10)
    kept = [one for one in said if one in talk.sight()]
    print(f"{policy}: {len(kept)} of {len(said)} verbatim after {len(talk.folds())} folds")
    assert kept == said
    assert all(isinstance(one, Rejected) for one in talk.verdicts)


@pytest.mark.parametrize("window", [2_048, 4_096, 8_192, 16_384, 32_768])
def test_constraints_at_small_windows(shared, recorded, window):
    """Law 8: verbatim, or one recall away."""
    said = [
        one["sssc"]
        for one in json.loads((shared / "data/compint_side_constraints.json").read_text())
    ]
    talk = Told(Facts(limits(window, None), STEADY, PRICED), Instructed((Text("Be exact."),)))
    places = []
    for constraint in said:
        talk.step(user(constraint))
        places.append(
            max(seq for seq, one in enumerate(talk.events) if isinstance(one, log.UserSaid))
        )
        talk.add(model("Understood."))
    live(talk, list(runs(recorded)), 10)
    verbatim = sum(one in talk.sight() for one in said)
    print(f"window {window}: {verbatim} of 15 verbatim, the others by recall")
    for seq, constraint in zip(places, said, strict=True):
        assert constraint in talk.sight() or talk.recalled(seq) == constraint


# typed facts.


def bash(at, command, text="done", *, ok=True):
    return [
        ModelSaid(
            (Text(f"Running step {at}."), Call(f"p{at}", "bash", json.dumps({"command": command})))
        ),
        ToolReturned(f"p{at}", (Text(text),), ok=ok),
    ]


def todo(at, *tasks):
    given = {"todos": [{"content": text, "status": status} for text, status in tasks]}
    return [
        ModelSaid((Call(f"p{at}", "TodoWrite", json.dumps(given)),)),
        ToolReturned(f"p{at}", (Text("ok"),)),
    ]


PLANTED = [
    bash(1, "echo x > conf/planted_one.toml"),
    bash(2, "cat docs/planted_two.md", "# words"),
    bash(3, "rm old/planted_three.c"),
    bash(4, "mv lib/planted_four.rs lib/planted_five.rs"),
    bash(5, "./planted_check.sh --all", "boom\nexit code: 3", ok=False),
    bash(6, "make planted_target", "fine\nexit code: 0"),
    bash(7, "pytest tests/test_planted.py", "FAILED tests/test_planted.py::test_six - assert\n1 failed", ok=False),
    bash(8, "pytest tests/test_fixed.py", "FAILED tests/test_fixed.py::test_seven - assert\n1 failed", ok=False),
    bash(9, "python go.py", "Traceback\nPlantedError: the eighth row is bad", ok=False),
    bash(10, "curl -s https://planted.example.org/ninth", "ok"),
    todo(11, ("plant the tenth", "in_progress"), ("water the eleventh", "pending")),
    bash(12, "cat src/planted_fifteen.go && cat src/planted_sixteen.go", "package x"),
    bash(13, "go test ./...", "--- FAIL: TestSeventeen (0.00s)\nexit status 1", ok=False),
    bash(14, "wget https://planted.example.org/eighteen.html", "ok"),
    [model("I decided to keep planted_twelve instead of the cache.")],
]  # fmt: skip
FACTS = {
    "file": {
        "conf/planted_one.toml": "written", "docs/planted_two.md": "read", "old/planted_three.c": "removed",
        "lib/planted_four.rs": "moved to lib/planted_five.rs", "lib/planted_five.rs": "written",
        "src/planted_fifteen.go": "read", "src/planted_sixteen.go": "read",
    },
    "command": {"./planted_check.sh --all": "exit 3", "make planted_target": "exit 0"},
    "test": {"tests/test_planted.py::test_six": "failed", "tests/test_fixed.py::test_seven": "failed", "TestSeventeen": "failed"},
    "error": {"PlantedError: the eighth row is bad": ""},
    "link": {"https://planted.example.org/ninth": "", "https://planted.example.org/eighteen.html": ""},
    "todo": {"list": "[~] plant the tenth\n[ ] water the eleventh"},
    "said": {"I decided to keep planted_twelve instead of the cache.": ""},
    "call": {'deploy {"to":"planted_thirteen"}': None},
}  # fmt: skip
CORRECTIONS = [
    bash(21, "rm conf/planted_one.toml"),
    bash(22, "echo y > old/planted_three.c"),
    bash(23, "./planted_check.sh --all", "fine\nexit code: 0"),
    bash(24, "pytest tests/test_fixed.py", "1 passed in 0.1s"),
    todo(25, ("plant the tenth", "completed"), ("water the eleventh", "in_progress")),
]


def told_by(talk):
    """What the folds that stand say together, the later winning."""
    facts = ()
    for event in talk.view.list_folds().values():
        facts = ledger.merge_facts(facts, event.facts)
    return {(fact.kind, fact.key): fact.text for fact in facts}


def shown_by(talk):
    """The texts of the handoffs in sight, oldest first."""
    return "\n".join(event.text for event in talk.view.list_folds().values())


WANTED = {(kind, key): text for kind, of in FACTS.items() for key, text in of.items()}


def planted(policy, window, teller):
    """A conversation that begins with the planted facts and two pins."""
    talk = Told(Facts(limits(window, None), PRESETS[policy], PRICED), teller=teller)
    talk.step(user("Grow the garden. The port is 5432."))
    for group in PLANTED:
        talk.add(group[0])
        if len(group) > 1:
            talk.step(group[1])
    talk.add(ModelSaid((Call("d", "deploy", '{"to":"planted_thirteen"}'),)), Interrupted("d"))
    talk.step(user("Remember planted_fourteen: the fence is green."))
    pins = (talk.view.items[-1].seq, next(i.seq for i in talk.view.items if i.role == "result"))
    talk.append(*(Pinned(seq) for seq in pins))
    talk.add(model("I will."))
    return talk


def corrected(talk):
    for group in CORRECTIONS:
        talk.add(group[0])
        talk.step(group[1])


@pytest.mark.parametrize("teller", ["lossy", "silent"])
@pytest.mark.parametrize(("policy", "window"), [("steady", 128_000)])
def test_planted_facts_after_ten_folds(shared, teller, policy, window):
    """R-26, R-33: 20 facts of every kind and pins, ten folds by a lossy teller: all in sight."""
    talk, work = planted(policy, window, teller), list(chats(shared))
    live(talk, work, 10)
    told, shown = told_by(talk), shown_by(talk)
    wrong = {key for key, text in WANTED.items() if told.get(key, "") != (text or told.get(key))}
    assert not wrong
    assert not {key for key in WANTED if key[1] not in shown and key[0] != "todo"}
    assert "planted_fourteen: the fence is green" in shown
    assert "# Pinned\n" in shown
    print(
        f"{policy} {teller}: {len(WANTED) + 2} of {len(WANTED) + 2} after {len(talk.folds())} folds"
    )
    # What was corrected since holds, and no later merge brings the old state back.
    corrected(talk)
    live(talk, work, 20)
    told = told_by(talk)
    assert told["file", "conf/planted_one.toml"] == "removed"
    assert told["file", "old/planted_three.c"] == "written"
    assert told["command", "./planted_check.sh --all"] == "exit 0"
    assert told.get(("test", "tests/test_fixed.py::test_seven")) != "failed"
    assert told["test", "tests/test_planted.py::test_six"] == "failed"
    assert told["todo", "list"] == "[x] plant the tenth\n[~] water the eleventh"


@pytest.mark.parametrize("policy", ["steady", "thrifty"])
def test_planted_facts_among_many_others(recorded, policy):
    """R-33: under 230 calls of other work a ledger is full; what gives way is one search away."""
    talk = planted(policy, 128_000, "lossy")
    live(talk, list(runs(recorded)), 10)
    shown = shown_by(talk)
    unseen = {key for key in WANTED if key[1] not in shown and key[0] != "todo"}
    print(f"among many, {policy}: {len(WANTED) - len(unseen)} of {len(WANTED)} in sight")
    assert {kind for kind, _ in unseen} <= {"command", "link", "error", "file"}
    for _, key in unseen:
        asked = recall.parse_query(f'recall("log:0-{talk.view.head}", grep="{re.escape(key)}")')
        assert key in recall.render_recall([Logged(*one) for one in enumerate(talk.events)], asked)


# By id.


def busy(talk, turns, *, size=60):
    for n in range(turns):
        talk.step(user(f"say {n} " * 5))
        talk.add(calls(f"c{n}"))
        talk.step(result(f"c{n}", f"line {n} of the output\n" * size))
        talk.add(model(f"answer {n}"))


def test_next_step_and_no_question_in_the_users_name():
    """R-18: a fold names the next step; nothing asks in the user's role."""
    talk = Told(Facts(limits(4_096, None), STEADY))
    talk.step(user("Paint the fence."))
    talk.add(*todo(1, ("sand it", "completed"), ("paint it green", "in_progress")))
    busy(talk, 20)
    newest = list(talk.view.list_folds().values())[-1].text
    assert (
        newest.split("# Next\n")[1]
        == "Go on with what follows; the task in hand is: paint it green"
    )
    said = {text_of(event.parts) for event in talk.events if isinstance(event, log.UserSaid)}
    for item in talk.view.items:
        if item.role == "user":
            assert text_of(item.parts) in said
        if item.role == "handoff":
            assert "?" not in text_of(item.parts)


def test_pins_and_instructions_after_twenty_folds():
    """R-25: system, instructions and pins verbatim after 20 folds, the teller saying "ok"."""
    talk = Told(Facts(limits(8_192, None), STEADY), Instructed((Text("Never shout."),)))
    talk.step(user("The key word is heron."))
    talk.append(Pinned(talk.view.items[-1].seq))
    talk.add(calls("k"))
    talk.step(result("k", "the port is 5432"))
    talk.append(Pinned(talk.view.items[-1].seq))
    while len(talk.folds()) < 20:
        busy(talk, 5)
    sight = talk.sight()
    for words in ("Never shout.", "The key word is heron.", "the port is 5432"):
        assert words in sight


def test_a_late_pin_is_whole_at_the_next_fold():
    """R-25: pinned when it was folded away already, an event comes back with the next fold."""
    talk = Told(Facts(limits(8_192, None), STEADY))
    talk.step(user("start"))
    talk.add(calls("k"))
    talk.step(result("k", "secret handshake: two knocks " * 3))
    place = talk.view.items[-1].seq
    while not talk.folds():
        busy(talk, 3)
    assert "secret handshake: two knocks " * 3 not in talk.sight()
    before = talk.sight()
    talk.append(Pinned(place))
    assert talk.sight() == before  # law 4: no byte changes until the next fold
    busy(talk, 30)
    assert "secret handshake: two knocks " * 3 in talk.sight()


def test_a_dropped_read_is_not_advertised_as_present():
    """R-27: a file that was read is told as read, and that its content is not here."""
    talk = Told(Facts(limits(4_096, None), STEADY))
    talk.step(user("Read it."))
    lines = "\n".join(f"def heron_{n}(): return 'grey {n}'" for n in range(40))
    talk.add(*bash(1, "cat src/heron.py", lines))
    busy(talk, 25)
    handoff = shown_by(talk)
    assert "src/heron.py" in handoff
    assert lines not in talk.sight()
    title = next(line for line in handoff.split("\n") if line.startswith("# Files"))
    assert "not shown here" in title


def test_handoffs_never_grow():
    """R-32: the words of all folds stay within a quarter of room over 60 generations."""
    for policy in (STEADY, THRIFTY, SLIDING):
        talk = Told(Facts(limits(8_192, None), policy), teller="lossy")
        sizes = []
        while len(talk.folds()) < 60:
            busy(talk, 1)
            sizes.append(sum(i.tokens for i in talk.view.items if i.role == "handoff"))
            assert len(talk.view.list_folds()) <= fold.MOST_FOLDS
        room = talk.plan().report.room
        assert max(sizes) <= room * policy.handoff + 100
        assert max(fold.rank for fold in talk.folds()) >= 2 or policy is SLIDING


def test_originals_are_the_same_bytes_after_fifty_folds():
    """R-35: nothing that came in is rewritten, whatever is folded over it."""
    with foldline.open(":memory:", model="test/model", window=2_048) as s:
        first = []
        for n in range(480):
            s.add(f"say {n} " * 10)
            s.request()
            s.add({"role": "assistant", "content": f"answer {n} " * 20})
            if n == 20:
                first = digests(s, 60)
        edits = sum(isinstance(event, Folded) for _, event in everything(s))
        assert edits >= 50
        assert digests(s, 60) == first


def everything(s):
    return s.history.events()


def digests(s, count):
    return [
        hashlib.sha256(log.encode_event(event)).hexdigest() for _, event in everything(s)[:count]
    ]


@pytest.mark.parametrize("name", ["recall", "mcp__foldline__recall", "foldline_recall"])
def test_recall_is_never_clipped_again(name):
    """R-37, traps: what recall gives back is bounded, and comes in as it is, whoever offers it."""
    policy = replace(STEADY, clip=replace(STEADY.clip, tokens=150))
    facts = Facts(limits(8_192, None), policy, recall=True)
    talk = Planned(facts, user("go"), calls("a"))
    talk.add(result("a", "\n".join(f"line {n} of the log" for n in range(3_000))))
    stub = text_of(talk.view.items[-1].parts)
    hint = next(line for line in stub.split("\n") if format_handle(3) in line)
    talk.append(ModelSaid((Call("r", name, '{"handle":"log:3"}'),)))
    most = foldline.core.plan.measure_recall_room(talk.view, facts)
    again = recall.render_recall([Logged(3, talk.events[3])], recall.parse_query(hint), most=most)
    talk.add(ToolReturned("r", (Text(again),)))
    assert talk.events[-1].clip is None
    assert text_of(talk.view.items[-1].parts) == again
    assert re.search(r"go on: recall\(", again)


def test_loss_report_and_preview():
    """R-38: what leaves the window, by kind, each with a handle that returns it."""
    talk = Told(Facts(limits(32_000, None), STEADY))
    busy(talk, 12)
    before = [log.encode_event(event) for event in talk.events]
    made = talk.plan(replace(talk.facts, now=True))
    found = lost(talk.view, made)
    assert isinstance(found, fold.Loss)
    assert [log.encode_event(event) for event in talk.events] == before
    folded = next(event for event in made.events if isinstance(event, Folded))
    assert (found.before, found.after) == (folded.before, folded.after)
    assert set(found.left) == {"answers", "results"}
    gone = {one.handle for kind in found.left.values() for one in kind}
    talk.ask(made)
    sight = {item.seq for item in talk.view.items if item.state != "folded"}
    for seq, event in enumerate(talk.events[: folded.change.span.hi + 1]):
        if isinstance(event, ModelSaid | ToolReturned):
            assert (f"log:{seq}" in gone) == (seq not in sight)
    assert "tokens become" in str(found)
    for name in gone:
        assert recall.parse_query(name).span.lo < len(before)


def test_what_a_person_excludes_is_read_by_no_fold():
    """Excluded words are neither quoted nor turned into facts, nor told to a teller."""
    talk = Told(Facts(limits(8_192, None), SLIDING), teller="lossy")
    talk.step(user("the password is hunter2_secret"))
    talk.add(model("noted"))
    talk.add(*bash(1, "cat vault/file", "hunter2_token at https://hunter2.example.org"))
    talk.append(
        exclude_events(
            talk.view, [item.seq for item in talk.view.items if "hunter2" in text_of(item.parts)]
        )
    )
    assert "hunter2" not in talk.sight()
    busy(talk, 40)
    assert len(talk.folds()) > 5
    assert "hunter2" not in talk.sight().replace("cat vault/file", "")
    assert not [one for event in talk.folds() for one in event.facts if "hunter2_token" in one.key]


def test_overlap_reads_the_turns_before():
    """A-31, A-32: at θ=5, ω=2 the second fold covers turns 6 to 10 and reads from turn 4 on."""
    talk = Told(Facts(limits(128_000, None), SLIDING))
    starts = []
    for n in range(12):
        talk.step(user(f"turn {n + 1} " * 20))
        starts.append(talk.view.items[-1].seq)
        talk.add(model(f"answer {n + 1} " * 60))
    one, two = talk.folds()
    assert one.reads is None
    assert two.change.span.lo == one.change.span.hi + 1
    assert two.reads.lo == starts[3]
    assert (two.messages, one.messages) == (10, 10)


def hidden_talk():
    talk = Conversation()
    talk.add(user("task"), user("my SECRET is 42"), model("ok"), Pinned(2), user("go"), model("x"))
    return talk


def in_sight(talk):
    items = (*talk.view.items, *talk.view.waiting)
    calls = (call.arguments for item in items for call in calls_of(item.parts))
    return "\n".join((*(text_of(item.parts) for item in items), *calls))


def test_excluded_words_stay_out():
    """Pinned too, redone folds, and an answer's arguments; what cannot be excluded says so."""
    talk = hidden_talk()
    talk.add(exclude_events(talk.view, [2]))
    talk.fold(rules.cut_points(talk.view)[-1])
    assert "SECRET" not in in_sight(talk)
    talk = hidden_talk()
    talk.fold(rules.cut_points(talk.view)[-1])
    assert talk.undo(len(talk.events) - 1)
    redo = len(talk.events) - 1
    talk.add(exclude_events(talk.view, [2]))
    assert not talk.undo(redo)
    assert "SECRET" not in in_sight(talk)
    talk = Conversation()
    talk.add(user("a"), ModelSaid((Call("c", "run", '{"cmd":"SECRET"}'),)), result("c"), model("b"))
    talk.add(exclude_events(talk.view, [2]))
    assert "SECRET" not in in_sight(talk)
    talk.add(Instructed((Text("new rule"),)))
    with pytest.raises(BadHandle):
        exclude_events(talk.view, [talk.view.head])


def test_a_pin_that_is_nowhere_does_not_stop_a_session():
    """Traps: nothing that is in the log may switch folding off for ever."""
    with foldline.open(":memory:", model="test/model", window=2_048) as s:
        s.add(Pinned(-1))
        for n in range(60):
            s.add(f"say {n} " * 30)
            s.request()
            s.add({"role": "assistant", "content": "yes"})
        assert s.edits


def test_three_layer_keeps_pins():
    """R-25."""
    talk = Planned(Facts(limits(128_000, None), PRESETS["three-layer"]), user("keep me: heron"))
    talk.append(Pinned(1), model("ok"))
    for n in range(60):
        talk.add(user(f"word{n} " * 600), model("yes"))
        talk.ask(talk.plan())
    assert talk.folds()
    assert "keep me: heron" in "\n".join(text_of(item.parts) for item in talk.view.items)


def test_the_loss_report_names_words_no_longer_quoted():
    """R-38: also where a merge lets go what an older record still quoted."""
    talk = Conversation()
    for n in range(30):
        talk.add(user(f"rule {n}: " + "never " * 8), model("ok"))
    talk.fold(rules.cut_points(talk.view)[-1], cap=4_000)
    first = talk.events[-1]
    before = talk.view.copy()
    talk.add(user("x"), model("y"))
    before = talk.view.copy()
    talk.fold(rules.cut_points(talk.view)[-1], cap=300)
    found = fold.measure_loss(before, talk.events[-1])
    gone = {*first.verbatim} - {*talk.events[-1].verbatim, *talk.events[-1].clipped}
    assert gone
    assert {f"log:{seq}" for seq in gone} == {*found.unquoted}
