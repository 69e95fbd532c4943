"""What clients met with 0.1.0, one test each: what a proxied request, its log and its headers must be."""

import http.client
import json
from contextlib import contextmanager
from dataclasses import replace

import anthropic
import pytest
from gateway_thread import Served

import foldline
from foldline.apps.cli.context import apply_look
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.core.log import Clipped, Folded, Opened, Pinned, Rewound, SettingsChanged, UserSaid
from foldline.session.log_handle import Live
from foldline.session.model_facts import build_facts
from foldline.session.stored_session import open_stored_session
from foldline.session.sync import run_coroutine
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing.provider import Provider

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
BOTH = pytest.mark.parametrize("path", [CHAT, MESSAGES], ids=["openai", "anthropic"])
WORDS = "The run printed nothing of note, and the file is as it was. " * 6
PAGE = WORDS * 10
EPHEMERAL = {"type": "ephemeral"}
CLAUDE = {"user-agent": "claude-cli/2.1.197 (external, cli)", "x-claude-code-session-id": "0b6e-77"}
OPENCODE = {"user-agent": "opencode/1.18.33", "x-session-id": "ses_1", "x-session-affinity": "ses_1"}  # fmt: skip


class Agent:
    """A client of a gateway, in front of a scripted provider: it sends what it says, byte for byte."""

    def __init__(self, gateway, provider, path, **headers):
        self.gateway, self.provider, self.path, self.headers = gateway, provider, path, headers
        self.history = []
        self.fields = {"model": "m", "max_tokens": 50}

    def send(self, messages=None, **fields):
        """One request: status, the gateway's own headers, and the provider's answer."""
        body = {**self.fields, **fields, "messages": self.history if messages is None else messages}
        self.asked = json.dumps(body).encode()
        client = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
        headers = {"content-type": "application/json", "x-api-key": "sk-one", **self.headers}
        client.request("POST", self.path, self.asked, headers)
        answer = client.getresponse()
        self.status, whole = answer.status, json.loads(answer.read())
        client.close()
        self.told = {name.lower()[11:]: value for name, value in answer.getheaders() if name.lower().startswith("x-foldline-")}  # fmt: skip
        return whole

    def say(self, words, **fields):
        """One turn; the answer is in the history."""
        self.history.append({"role": "user", "content": words})
        whole = self.send(**fields)
        self.hear(whole)
        return whole

    def hear(self, whole):
        """Keep an answer."""
        if self.path == CHAT:
            self.history.append(whole["choices"][0]["message"])
        else:
            self.history.append({"role": "assistant", "content": whole["content"]})

    @property
    def sent(self):
        """What the provider got last."""
        return self.provider.bodies[-1]

    @property
    def session(self):
        """The session of the last request."""
        return self.told["session"]

    def events(self, session=""):
        """The log of a session."""
        store = self.gateway.conversations.store
        facts = build_facts("m", window=None, reserve=None, policy="steady")
        name = Name("local", session or self.session)
        live = run_coroutine(Live.open(store, name, facts=facts))
        return [event for _, event in run_coroutine(live.read_events(foldline.core.spine.Range(0, live.view.head)))]  # fmt: skip


PRICED = {CHAT: "gpt-4.1", MESSAGES: "claude-sonnet-4-5"}


@contextmanager
def agent(path, script=None, *, window=None, limit=1_000_000, audit=None, settings=None, headers=None):  # noqa: PLR0913  # fmt: skip
    """An agent; `window` is what the gateway knows, `limit` what the provider takes."""
    with Provider(script, window=limit) as provider:
        given = replace(
            settings or GatewaySettings(upstreams={}), upstreams=parse_upstreams([provider.url], {})
        )
        with Served(given, store=":memory:", window=window, audit=audit) as gateway:
            yield Agent(gateway, provider, path, **(headers or {}))


def said_in(body):
    """The words of each message of a body."""
    return [json.dumps(one["content"]) for one in json.loads(body)["messages"]]


@BOTH
def test_p2_a_changed_system_prompt_is_not_stacked(path):
    """Twelve prompts, each as it is now: no earlier one goes along, and nothing is edited for them."""
    with agent(path, window=60_000) as one:
        names = set()
        for turn in range(12):
            prompt = f"It is {turn} o'clock. Permissions: {turn % 3}. " + "Rules. " * 500
            if path == CHAT:
                one.history[:1] = [{"role": "system", "content": prompt}] + one.history[:1] * (not turn)  # fmt: skip
                one.say(f"turn {turn}")
            else:
                one.say(f"turn {turn}", system=prompt)
            assert one.sent == one.asked
            assert (one.told["edits"], "patches" in one.told) == ("0", False)
            names.add(one.session)
        assert len(names) == 1


@BOTH
def test_p3_a_system_message_in_the_list_stays_one(path):
    """In its place while nothing is folded; verbatim in the handoff, under a heading, once it is."""
    with agent(path, window=4_000) as one:
        for turn in range(60):
            if turn in (2, 58):
                one.history.append({"role": "system", "content": f"From now on, rule {turn}."})
            one.say(f"Turn {turn}. {WORDS}")
            assert b"[further instructions" not in one.sent
            if turn == 2:
                assert one.sent == one.asked
        roles = [message["role"] for message in json.loads(one.sent)["messages"]]
        assert roles.count("system") == 1
        assert json.loads(one.sent)["messages"][roles.index("system")]["content"] == "From now on, rule 58."  # fmt: skip
        handoff = json.loads(one.sent)["messages"][0]["content"]
        head, _, tail = handoff.partition("# Instructions that stood in between")
        assert tail.rstrip().endswith("From now on, rule 2.")
        assert "rule 2." not in head


@pytest.mark.parametrize("session", ["", "mine"], ids=["unnamed", "named"])
def test_p4_a_list_that_becomes_a_string_is_the_same_message(session):
    """Claude Code marks the newest message in a list, and says it as a plain string afterwards."""
    named = {"x-foldline-session": session} if session else {}
    with agent(MESSAGES, headers=named) as one:
        names = set()
        for turn in range(12):
            block = {"type": "text", "text": f"Turn {turn}. {WORDS}", "cache_control": EPHEMERAL}
            one.say([block])
            assert one.sent == one.asked
            one.history[-2]["content"] = block["text"]
            names.add(one.session)
        assert len(names) == 1
        assert sum(isinstance(event, UserSaid) for event in one.events()) == 12
        assert len(run_coroutine(one.gateway.conversations.store.sessions("local"))) == 1


@BOTH
def test_p5_a_transient_tail_is_no_fork(path):
    """A reminder that is said with each call and never again: one log, and a prefix that stays."""
    with agent(path, window=4_000) as one:
        edits, before, names = 0, [], set()
        for turn in range(40):
            one.history.append({"role": "user", "content": f"Turn {turn}. {WORDS}"})
            tail = {"role": "user", "content": f"<todo>{turn} of 40 done</todo>"}
            whole = one.send([*one.history, tail])
            sent = json.loads(one.sent)["messages"]
            assert sent[-1] == tail
            assert len(one.sent) < 4_000 * 5
            if one.told["edits"] == "0" and before:
                assert sent[: len(before)] == before, "what was sent is the beginning of what is"
            edits += int(one.told["edits"])
            before = sent[:-1]
            one.hear(whole)
            names.add(one.session)
        assert len(names) == 1
        assert 0 < edits < 14
        said = [event for event in one.events() if isinstance(event, UserSaid)]
        assert len(said) == 80, "each message is kept once"
        assert len(run_coroutine(one.gateway.conversations.store.sessions("local"))) == 1


@BOTH
@pytest.mark.parametrize(
    "state",
    [
        {"thread": {"type": "continue", "previous_message_id": "msg_1"}},
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"background": True},
    ],
    ids=lambda one: next(iter(one)),
)
def test_p6_what_refers_to_its_server_passes_untouched(path, state):
    """A tool's result alone is no history: it goes to whoever keeps the call."""
    result = {"role": "tool", "tool_call_id": "c1", "content": "4"} if path == CHAT else {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "4"}]}  # fmt: skip
    with agent(path, window=4_000) as one:
        for _ in range(2):
            one.send([result], **state)
            assert one.sent == one.asked
            assert one.told == {"unplanned": "server-state"}
        one.send([{"role": "user", "content": "hi"}], **dict.fromkeys(state))  # null says nothing
        assert "session" in one.told
        assert len(run_coroutine(one.gateway.conversations.store.sessions("local"))) == 1


@BOTH
def test_p7_a_newest_message_that_is_too_large_is_cut_and_sent_again(path):
    """Nobody knew the window. The client sees the answer, not the refusal; and not once more."""
    with agent(path, window=100_000, limit=3_000) as one:
        one.say("hi")
        large = "Look at this: " + "1 2 3 4 5 6 7 8 9 " * 1_500
        one.say(large)
        assert one.status == 200
        assert one.provider.statuses == [200, 400, 200]
        assert one.told["patches"] == "clip=1"
        assert large[:200] in json.loads(one.sent)["messages"][-1]["content"]
        assert any(isinstance(event, Clipped) for event in one.events())
        one.say("And now?")
        assert one.provider.statuses == [200, 400, 200, 200]
        kept = [event for event in one.events() if isinstance(event, UserSaid)]
        assert kept[1].parts[0].text == large, "nothing is lost"


@BOTH
def test_p8_no_clip_and_no_lowered_limit_is_silent(path, tmp_path):
    audit = tmp_path / "audit.jsonl"
    with agent(path, window=8_000, audit=audit) as one:
        one.say("1 2 3 4 5 6 7 8 9 " * 4_000)
        assert len(one.sent) < len(one.asked) / 2
        assert one.told["patches"] == "clip=1"
        assert one.told["edits"] == "1"
        one.history.clear()
        one.say("hi", max_tokens=20_000)
        assert one.told["patches"] == "limit=1"
        assert 4_000 < json.loads(one.sent)["max_tokens"] < 8_000
        assert one.sent == one.asked.replace(b"20000", str(json.loads(one.sent)["max_tokens"]).encode())  # fmt: skip
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [line["patches"] for line in lines] == [{"clip": 1}, {"limit": 1}]
    assert lines[0]["edits"] == 1


def test_p14_what_the_upstream_takes_is_not_refused():
    """A prompt of 27,000 tokens beside an answer limit of 32,000, in a window of 60,000."""
    with agent(MESSAGES, window=60_000) as one:
        for turn in range(10):
            one.say(f"turn {turn}", system="You shall do so. " * 6_750, max_tokens=32_000)
            assert one.status == 200
            assert "unplanned" not in one.told
            assert json.loads(one.sent)["messages"] == json.loads(one.asked)["messages"]
            assert json.loads(one.sent)["max_tokens"] > 20_000


@BOTH
def test_p15_a_fold_stays_when_a_history_turns_off(path):
    """Asked again, with another tail, from two places at once: the fold that was made still stands."""
    with agent(path, window=4_000) as one:
        for turn in range(40):
            one.say(f"Turn {turn}. {WORDS}")
        folds = sum(isinstance(event, Folded) for event in one.events())
        whole, base = len(one.asked), one.history[:-2]
        for again in range(4):
            one.history = [*base, {"role": "user", "content": f"Or rather {again}."}]
            one.hear(one.send())
            assert len(one.sent) < whole * 0.8
            assert one.told["patches"].startswith("fold=1")
            assert json.loads(one.sent)["messages"][-1]["content"] == f"Or rather {again}."
        log = one.events()
        assert sum(isinstance(event, Folded) for event in log) <= folds + 1
        assert sum(isinstance(event, Rewound) for event in log) == 4
        assert sum(isinstance(event, Opened) for event in log) == 1


SUMMARY = "<summary>\n1. Primary request: mend the parser of the config files.\n2. Key concepts: quotes, escapes, includes.\n3. Pending: the lexer's tests, which fail at line 88.\n</summary>"
COMPACT = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n" + "Your task is to create a detailed summary of the conversation so far. " * 20  # fmt: skip


def test_p16_claude_codes_own_compaction_is_whole_and_kept():
    """By its structure: the whole history again, whose last message has one long text more."""
    plan = {"said": "noted"}
    with agent(MESSAGES, lambda _: plan["said"], window=60_000, headers=CLAUDE) as one:
        one.fields["model"] = PRICED[MESSAGES]
        for turn in range(48):
            one.say([{"type": "text", "text": f"Turn {turn}. {PAGE}"}])
        assert one.told["patches"] == "fold=1", "our own fold stands"
        main = one.session
        # The request before was answered with a call; that answer is not in the one that compacts.
        plan["said"] = {"tool_calls": [{"id": "toolu_1", "type": "function", "function": {"name": "Read", "arguments": '{"at":1}'}}]}  # fmt: skip
        last = {"type": "text", "text": "Turn 40. Read the lexer."}
        one.history.append({"role": "user", "content": [{**last, "cache_control": EPHEMERAL}]})
        call = one.send()["content"]
        plan["said"] = SUMMARY
        asks = [{**last, "text": last["text"] + "\n"}, {"type": "text", "text": COMPACT}]
        one.send([*one.history[:-1], {"role": "user", "content": asks}])
        assert one.sent == one.asked, "its summary is made of what was said, not of our handoff"
        assert one.told["unplanned"] == "compaction"
        plan["said"] = "noted"
        words = f"This session is being continued from a previous conversation that ran out of context. The summary below covers the earlier portion of the conversation.\n\nSummary:\n{SUMMARY}\n\nContinue."
        one.history = [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder># currentDate</system-reminder>"}, {"type": "text", "text": words}]},
            {"role": "assistant", "content": call},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call[-1]["id"], "content": "line 88", "cache_control": EPHEMERAL}]},
        ]  # fmt: skip
        one.hear(one.send())
        assert one.sent == one.asked
        assert one.session == main
        log = one.events()
        assert [event.compacted for event in log if isinstance(event, Rewound)] == [True]
        assert any(isinstance(event, Pinned) for event in log)
        for turn in range(60):
            one.say(f"Turn {turn} behind it. {PAGE}")
            assert json.dumps(SUMMARY)[1:-1] in one.sent.decode(), "as a user's own words are"
        assert one.told["patches"] == "fold=1"
        assert one.session == main


CALLED = {
    "tool_calls": [
        {"id": "one", "type": "function", "function": {"name": "Read", "arguments": '{"at":1}'}}
    ]
}


@BOTH
def test_a_message_behind_an_answer_that_was_left_out_is_no_compaction(path):
    """Long, and the answer had only a call, which the client dropped when its user spoke."""
    plan = {"said": "noted"}
    with agent(path, lambda _: plan["said"], window=60_000, headers=CLAUDE) as one:
        one.say(f"Begin. {WORDS}")
        plan["said"] = CALLED
        one.history.append({"role": "user", "content": "Read the lexer."})
        one.send()
        plan["said"] = "noted"
        one.say(f"No, not that. {WORDS * 2}")
        assert "unplanned" not in one.told
        said = [event.parts[0].text for event in one.events() if isinstance(event, UserSaid)]
        assert said == [each["content"] for each in one.history if each["role"] == "user"]


def test_a_compaction_that_is_refused_for_its_length_is_recorded():
    """It went whole; what is sent instead is planned as any request, with its words in the log."""
    plan = {"said": "noted"}
    with agent(MESSAGES, lambda _: plan["said"], window=20_000, limit=9_000, headers=CLAUDE) as one:  # fmt: skip
        for turn in range(9):
            one.say([{"type": "text", "text": f"Turn {turn}. {PAGE}"}])
        main = one.session
        assert one.sent == one.asked
        last = {"type": "text", "text": "Read the lexer."}
        one.history.append({"role": "user", "content": [last]})
        one.send()
        plan["said"] = SUMMARY
        asks = [last, {"type": "text", "text": COMPACT * 10}]
        one.history[-1] = {"role": "user", "content": asks}
        one.hear(one.send())
        assert (one.status, one.session) == (200, main)
        assert one.provider.bodies[-2] == one.asked, "whole, and refused"
        assert one.sent != one.asked
        (said,) = [event for event in one.events() if isinstance(event, UserSaid) and len(event.parts) == 2]  # fmt: skip
        assert said.parts[1].text == asks[1]["text"]
        plan["said"] = "noted"
        one.say("Go on.")
        assert one.session == main, "what it answered is in its place"


@BOTH
def test_p16_opencodes_own_compaction_is_whole_and_kept(path):
    """Its summary is a model's message behind an invented question, and the newest turns stay."""
    plan = {"said": "noted"}
    with agent(path, lambda _: plan["said"], window=30_000, headers=OPENCODE) as one:
        for turn in range(12):
            plan["said"] = f"Turn {turn} is done."
            one.say(f"Turn {turn}. {WORDS}")
        main = one.session
        plan["said"] = SUMMARY
        told = "\n\n".join(f"[User]: Turn {turn}. {WORDS}" for turn in range(10))
        one.send([{"role": "user", "content": f"Here is the conversation so far:\n\n<conversation>\n{told}</conversation>"}])  # fmt: skip
        assert one.sent == one.asked
        assert one.session != main, "a side conversation"
        plan["said"] = "noted"
        summary = {"role": "assistant", "content": SUMMARY}
        kept = one.history[-4:]
        one.history = [{"role": "user", "content": "What did we do so far?"}, summary, *kept, {"role": "user", "content": "Continue if you have next steps."}]  # fmt: skip
        one.hear(one.send())
        assert one.sent == one.asked
        assert one.session == main
        for turn in range(60):
            one.say(f"Turn {turn} behind it. {PAGE}")
            assert json.dumps(SUMMARY)[1:-1] in one.sent.decode()
        assert one.told["patches"] == "fold=1"
        assert one.session == main


def test_p17_a_trailing_system_message_stays_behind_all_others():
    """As aider's edit rules: also behind a fold."""
    first, last = ({"role": "system", "content": words} for words in ("You code.", "Edit so, and only so."))  # fmt: skip
    with agent(CHAT, window=4_000) as one:
        for turn in range(60):
            one.history.append({"role": "user", "content": f"Turn {turn}. {WORDS}"})
            one.hear(one.send([first, *one.history, last]))
            sent = json.loads(one.sent)["messages"]
            assert (sent[0], sent[-1]) == (first, last)
            assert sent[-2]["content"].startswith(f"Turn {turn}.")
            assert one.sent.count(b"Edit so, and only so.") == 1
        assert one.told["patches"] == "fold=1"


@BOTH
def test_p18_limits_and_marks_are_the_clients(path):
    """Nothing needs to fit: not a byte differs, in no request."""
    with agent(path, window=200_000) as one:
        system = [{"type": "text", "text": "Be brief.", "cache_control": EPHEMERAL}]
        for turn in range(20):
            for message in one.history[-4:]:
                if isinstance(message["content"], list):
                    message["content"][-1].pop("cache_control", None)
            words = [{"type": "text", "text": f"Turn {turn}. {WORDS}", "cache_control": EPHEMERAL}]
            one.say(words, max_tokens=64_000, **({"system": system} if path == MESSAGES else {}))
            assert one.sent == one.asked
            assert "patches" not in one.told


def test_p18_a_mark_in_a_folded_run_moves_to_the_handoff():
    """With its ttl; no other is added, removed or moved."""
    mark = {"type": "ephemeral", "ttl": "1h"}
    with agent(MESSAGES, window=4_000) as one:
        one.history = [
            {"role": "user", "content": [{"type": "text", "text": "First.", "cache_control": mark}]}
        ]
        one.hear(one.send())
        for turn in range(40):
            one.say(f"Turn {turn}. {WORDS}")
        assert one.told["patches"] == "fold=1"
        assert one.sent.count(b"cache_control") == 1
        handoff = json.loads(one.sent)["messages"][0]["content"]
        assert handoff[-1]["cache_control"] == mark


@BOTH
def test_p19_an_operator_says_from_where_on_it_is_folded(path):
    """For everybody, and otherwise for one kind of client."""
    sizes = {}
    for name in ("", "curl/8", "claude-cli/2.1.197"):
        given = GatewaySettings(
            upstreams={}, fold_from={"": 44_000, "claude-cli": 50_000} if name else {}
        )
        with agent(path, window=60_000, settings=given, headers={"user-agent": name}) as one:
            one.fields["model"] = PRICED[path]
            one.say("hi")
            while "patches" not in one.told:
                sizes[name] = int(one.told["tokens"])
                one.say(f"Turn {len(one.history)}. {PAGE}")
    assert 28_000 < sizes[""] < 42_000
    assert 43_000 < sizes["curl/8"] < 46_000
    assert 49_000 < sizes["claude-cli/2.1.197"] < 52_000


def test_p19_a_wrapped_client_is_told_too():
    with Provider() as provider:
        made = anthropic.Anthropic(base_url=provider.url, api_key="none")
        with foldline.wrap(made, window=60_000, fold_from=50_000) as client:
            history, tokens = [], []
            while not tokens or b"[handoff" not in provider.bodies[-1]:
                history.append({"role": "user", "content": f"Turn {len(history)}. {PAGE}"})
                client.messages.create(model="m", max_tokens=50, messages=history)
                history.append({"role": "assistant", "content": "ok"})
                tokens.append(client.foldline.session.report.total)
            assert tokens[-2] > 49_000


@BOTH
def test_p20_edits_are_counted_where_they_are_made(path):
    """The header says how many were made for this request; the patches say what stands."""
    with agent(path, window=4_000) as one:
        made, stood = [], 0
        for turn in range(40):
            one.say(f"Turn {turn}. {WORDS}")
            made.append(int(one.told["edits"]))
            stood += "patches" in one.told
        edits = [event for event in one.events() if isinstance(event, Folded)]
        assert sum(made) == len(edits)
        assert 0 < sum(made) < stood


def test_p21_a_renewed_token_goes_on_with_its_conversation():
    """A client that sends an id of its own is known by that; another one by its key."""
    with agent(MESSAGES, headers=CLAUDE) as one:
        names = set()
        for turn in range(4):
            one.headers |= {"authorization": f"Bearer token-{turn}"}
            one.say(f"turn {turn}")
            names.add(one.session)
        assert len(names) == 1
        one.headers |= {"x-claude-code-session-id": "another"}
        one.say("turn 4")
        assert one.session not in names, "another conversation of this client"
        one.headers |= {"x-claude-code-session-id": "0b6e-77", "user-agent": "curl/8", "authorization": "Bearer stolen"}  # fmt: skip
        one.say("turn 5")
        assert one.session not in names, "the id counts only from the client that always sends it"


def test_qwen_that_leaves_out_its_context_continues_its_session():
    """Its date stands in the newest message alone, and with `--continue` not in what went before."""

    def say(words, *context):
        told = [f"<system-reminder>\n{one}\n</system-reminder>" for one in context]
        blocks = [{"type": "text", "text": text} for text in (*told, words)]
        return {"role": "user", "content": blocks}

    setting = "This is the Qwen Code. We are setting up the context for our chat.\nIt is {}."
    with agent(CHAT, window=30_000) as one:
        turns, sessions = [], set()
        for turn in range(3):
            told = (setting.format(turn), "Tools: 3.") if not turn else ()
            newest = say(f"Turn {turn}. {WORDS}", *told, f"The date: {turn}.")
            one.history = [*turns, newest]
            one.hear(one.send())
            assert one.sent == one.asked
            sessions.add(one.session)
            turns += [say(f"Turn {turn}. {WORDS}", *told), one.history[-1]]
            if turns[0] != newest:
                turns[0] = say(f"Turn 0. {WORDS}", setting.format(turn + 1), "Tools: 3.")
        assert len(sessions) == 1
        assert not [event for event in one.events() if isinstance(event, Rewound)]


@BOTH
def test_the_window_that_was_told_is_in_the_log(path, tmp_path):
    """So that whoever looks at the session need not tell it again; another one told later holds from then on."""

    async def look(session):
        store = store_at(str(tmp_path / "s.db"))
        _, facts = apply_look(await open_stored_session(store, Name("local", session)))
        await store.close()
        return facts.limits.window

    seen, history = [], []
    with Provider() as provider:
        settings = GatewaySettings(upstreams=parse_upstreams([provider.url], {}))
        for window in (40_000, 40_000, 60_000, None):
            with Served(settings, store=str(tmp_path / "s.db"), window=window) as gateway:
                one = Agent(gateway, provider, path)
                one.history = history
                one.say(f"It is {window}.")
                seen.append(run_coroutine(look(one.session)))
                named, log = one.session, one.events()
    assert seen == [40_000, 40_000, 60_000, 60_000]
    assert len([event for event in log if isinstance(event, SettingsChanged)]) == 1, named
