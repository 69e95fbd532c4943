"""Law 9 over random clients, the oracle on edits that are allowed, and on changes that are not."""

import asyncio
import json
import re
import sys
from collections import Counter
from pathlib import Path
from random import Random

import law_checks as laws
import pytest
from client_habits import GEMINI_HABITS, HABITS
from client_programs import ACTIONS, Call, draw_program, play_program, programs
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken
from serving import SERVER
from transparency_oracle import (
    HANDOFF,
    LISTS,
    _marks_in,
    canaries_in,
    judge_program,
    judge_request,
    role_of,
    split_list,
    split_object,
)

from foldline.core.edits.fold import handoff
from foldline.core.spine import Range
from foldline.dialects.base import DIALECTS
from foldline.errors import FoldlineError
from foldline.proxy import client_request

CHAOS = Path(__file__).parents[1] / "chaos"


def test_transparent():
    """Law 9 through the real path, in memory."""

    @given(programs())
    def holds(program):
        laws.transparent(play_program(program))

    holds()


def test_transparent_at_once():
    """The same with all clients of a program at the same time."""

    @given(programs())
    def holds(program):
        laws.transparent(play_program(program, at_once=True))

    holds()


@pytest.mark.parametrize("seed", [700_028, 700_088, 710_081])
def test_thinking_changes_only_for_a_fold_or_a_full_window(seed):
    """A loop without thinking of its client's own goes as it came; a budget is lowered for all of a conversation."""
    laws.transparent(play_program(draw_program(seed)))


def test_a_long_message_behind_a_call_that_broke_off_stays_in_its_session():
    """It was taken for a compaction, and its answer was recorded without it once it was refused."""
    laws.transparent(play_program(draw_program(710_748)))


@pytest.mark.real
def test_transparent_in_real_processes():
    """Law 9 through two processes over PostgreSQL, clients and programs at the same time."""
    sys.path.insert(0, str(CHAOS))
    from transparent import run_for_real, schema_at  # noqa: PLC0415 - only where there is a server

    with schema_at(SERVER) as address:
        counts = asyncio.run(run_for_real(address, 2, range(20)))
    assert counts.programs == 20
    assert not counts.rules, counts.broken


PATCH, MATCH = "foldline.proxy.patch", "foldline.proxy.index"
CONVERSATION, CONVERSATIONS = "foldline.proxy.conversation", "foldline.proxy.conversations"
REQUEST = "foldline.proxy.client_request"
SHARED = "foldline.dialects.client_messages"
CHAT, MESSAGES = (
    "foldline.dialects.openai_chat.dialect",
    "foldline.dialects.anthropic.dialect",
)
MUTANTS = [
    # Bytes that no patch covers, and patches that nobody is told of.
    (PATCH, "request.chained[piece.upto - 1]", "request.chained[piece.upto - 2]"),
    (PATCH, "str(min(allowed, limit.asked)).encode()", "str(limit.asked + 1).encode()"),
    (PATCH, 'kinds["clip" if item.state == "clipped" else "stub"] += put != before', "pass"),
    (PATCH, 'kinds["fold"] += 1', "pass"),
    (MESSAGES, "== event.call_id and", "!= event.call_id and"),
    ("foldline.core.edits.clip",
     "        return event  # the marker would be longer than what was cut\n",
     "        pass\n"),
    # Instructions in between, thinking, the newest message.
    (PATCH, "for at in request.asides if at in run", "for at in ()"),
    (PATCH, "thinks = thoughtless and", "thinks ="),
    ("foldline.core.rules", "if not isinstance(said, Instructed) or not said.aside:", "if True:"),
    (MATCH, "at <= piece.upto < most", "at <= piece.upto <= len(digests)"),
    # Edits where the span that they replaced is not; what is out of sight and shown all the same.
    (MATCH, "if fits and request.chain[piece.upto - 1] == piece.chain:", "if fits:"),
    (MATCH, "if not fits or request.chain[fold.upto - 1] != fold.chain:", "if not fits:"),
    (MATCH, "if [one.link for one in said] != request.digests[at:end]:", "if False:"),
    (CONVERSATION, "elif match.dropped or match.opened:", "elif match.opened:"),
    # Whose conversation it is.
    ("foldline.proxy.identity", "(scope.owner or scope.key, scope.session, scope.family)",
     "(scope.session, scope.family)"),
    (CONVERSATIONS, "if (same.request.original or same.request.body) == body:", "if False:"),
    (REQUEST, "for name in dialect.server_state:", "for name in ():"),
    # Differences that mean nothing.
    (MESSAGES, 'words = str(block.get("text", "")).strip()', 'words = str(block.get("text", ""))'),
    (CHAT, 'said["text"] = text.strip()', 'said["text"] = text'),
    (SHARED, 'arguments = msgspec.json.decode(arguments or "{}")', "pass"),
    (SHARED, "if key != MARK and key not in ignored", "if key not in ignored"),
]  # fmt: skip
"""Broken variants of the proxied path, each a module, a line, and what stands there instead."""
SEEDS = range(400)
ITEMS = "foldline.dialects.openai_responses.dialect"
OWN_MUTANTS = [
    # A cut inside a model's turn.
    (REQUEST, "if is_model and goes_on:", "if False:"),
    # Differences that mean nothing.
    (ITEMS, 'case "reasoning" | "item_reference":', 'case "item_reference":'),
    (ITEMS, 'if text := said["text"].strip():', 'if text := said["text"]:'),
    (SHARED, 'arguments = msgspec.json.decode(arguments or "{}")', "pass"),
    (ITEMS, 'found = strip_empty_fields(item, *_IGNORED, "output")', 'found = strip_empty_fields(item, "output")'),
    # A text alone that becomes something else, an output that is patched as a message is.
    (ITEMS, "        return msgspec.json.encode(text)\n", "        return raw\n"),
    (ITEMS, '"output" if isinstance(event, ToolReturned) else "content"', '"content"'),
    (ITEMS, 'if type_of(decode_items(raw)[0]) == "shell_call_output":', "if False:"),
    # A handoff that is the model's, and history that its server keeps.
    (ITEMS, 'return b",".join(_join_items(write_items(item)) for item in items)',
     'return b\'{"role":"assistant","content":"[handoff: x]"}\''),
    (REQUEST, "for name in dialect.server_state:", "for name in ():"),
]  # fmt: skip
"""The same of Responses, where a turn is several items."""


CONTENTS = "foldline.dialects.gemini.dialect"
PARTS = "foldline.dialects.gemini.content_parts"
GEMINI_MUTANTS = [
    # Differences that mean nothing.
    (CONTENTS, "one.strip() if isinstance(one, str) else one for one in found", "one for one in found"),
    (CONTENTS, 'if name not in (SIGNATURE, "thought")', 'if name != "thought"'),
    (CONTENTS, 'if role == "model" and is_thought(part):', "if False:"),
    (CONTENTS, '"data": to_plain_base64(data)', '"data": data'),
    (CONTENTS, "if found and isinstance(found[-1], str):", "if False:"),
    (PARTS, "items() if one is not None)", "items())"),
    (PARTS, "seen[name] = count = seen.get(name, 0) + 1", "seen[name] = count = 1"),
    # A result that is another's, or went well where it failed; a text beside what was cut of it.
    (CONTENTS, "if one == event.call_id", "if one != event.call_id"),
    (CONTENTS, 'name = next(iter(answer)) if len(answer) == 1 else "output" if event.ok else "error"', 'name = "output"'),
    (CONTENTS, '{**kept, "response": put}', '{"response": put}'),
    (CONTENTS, 'if name != "parts" or media}', 'if name != "parts"}'),
    (CONTENTS, "gone = words[1:]", "gone = list[int]()"),
    (CONTENTS, 'said = find_fields(raw, places[words[0]])["text"]', 'said, text = find_fields(raw, places[words[0]])["text"], text[1:]'),
    # A limit that is not where it stands, a handoff of the model, history that its server keeps.
    (PATCH, "place = find_fields(request.body, place)[inner]", "pass"),
    (PATCH, "str(min(allowed, limit.asked)).encode()", "str(limit.asked + 1).encode()"),
    (CONTENTS, 'role = "model" if item.role == "model" else "user"', 'role = "model"'),
    (REQUEST, "for name in dialect.server_state:", "for name in ():"),
]  # fmt: skip
"""The same of Gemini, where texts are cut into parts and calls may have no ids."""


STEPS = "foldline.dialects.gemini_interactions.dialect"
STEP_PARTS = "foldline.dialects.gemini_interactions.steps"
STEP_MUTANTS = [
    # A cut inside a model's turn.
    (REQUEST, "if is_model and goes_on:", "if False:"),
    # Differences that mean nothing.
    (STEPS, '        case "thought":\n            return None\n', ""),
    (STEPS, 'if (words := content["text"].strip())', 'if (words := content["text"])'),
    (STEPS, '{**strip_empty_fields(step, "signature"), "type": kind}', "step"),
    (STEPS, "_normalise_contents(result) if isinstance(result, str | list) else result", "result"),
    (STEPS, '"result": said, "is_error": is_error}', '"result": said, "is_error": step.get("is_error")}'),
    (STEPS, "case kind if not is_models(step):", "case kind if False:"),
    # A text or a content alone that stays as it was, a result that is patched as an input is.
    (STEPS, "        return msgspec.json.encode(text)\n", "        return raw\n"),
    (STEPS, 'content = fields.get("text")  # a content alone', "pass"),
    (STEPS, '"result" if isinstance(event, ToolReturned) else "content"', '"content"'),
    (STEPS, "media = shows_media(item)", "media = False"),
    # Whose step it is, a limit that is not where it stands, a handoff of the model, server state.
    (STEP_PARTS, 'STEPS.get(name, "model") == "model" and name not in', "name != USER and name not in"),
    (PATCH, "place = find_fields(request.body, place)[inner]", "pass"),
    (STEPS, 'kind = OUTPUT if item.role == "model" else USER', "kind = OUTPUT"),
    (REQUEST, "for name in dialect.server_state:", "for name in ():"),
]  # fmt: skip
"""The same of Google's Interactions, where a turn is several steps."""
SOON = {
    "at <= piece.upto < most": 362,
    "thinks = thoughtless and": 393,
    'words = str(block.get("text", "")).strip()': 41,
    "if not fits or request.chain[fold.upto - 1] != fold.chain:": 73,
    "(scope.owner or scope.key, scope.session, scope.family)": 22,
    "if key != MARK and key not in ignored": 41,
    'arguments = msgspec.json.decode(arguments or "{}")': 24,
    'case "reasoning" | "item_reference":': 93,
    'if role == "model" and is_thought(part):': 93,
    '"data": to_plain_base64(data)': 75,
    "items() if one is not None)": 38,
    '{**strip_empty_fields(step, "signature"), "type": kind}': 36,
    "_normalise_contents(result) if isinstance(result, str | list) else result": 36,
    '"result": said, "is_error": is_error}': 38,
    "for name in dialect.server_state:": 25,
    '{**kept, "response": put}': 729,
    'if name != "parts" or media}': 729,
    'said = find_fields(raw, places[words[0]])["text"]': 729,
    STEP_MUTANTS[1][1]: 93,
    STEP_MUTANTS[7][1]: 112,
    STEP_MUTANTS[8][1]: 155,
}
"""The seed of a program that catches a variant, where the first few do not."""


@pytest.mark.long
@pytest.mark.parametrize(("module", "line", "instead"), MUTANTS)
def test_law_catches(module, line, instead):
    """By programs of any dialect, or by Anthropic's alone, which has marks and thinking."""
    check_caught(module, line, instead, "", "anthropic")


@pytest.mark.long
@pytest.mark.parametrize(("module", "line", "instead"), OWN_MUTANTS)
def test_law_catches_of_responses(module, line, instead):
    check_caught(module, line, instead, "openai-responses")


@pytest.mark.long
@pytest.mark.parametrize(("module", "line", "instead"), GEMINI_MUTANTS)
def test_law_catches_of_gemini(module, line, instead):
    check_caught(module, line, instead, "gemini")


@pytest.mark.long
@pytest.mark.parametrize(("module", "line", "instead"), STEP_MUTANTS)
def test_law_catches_of_interactions(module, line, instead):
    check_caught(module, line, instead, "gemini-interactions")


def check_caught(module, line, instead, *dialects):
    """Assert that some program breaks the law under a variant."""
    seeds = (SOON.get(line, 0), *SEEDS)
    with broken(module, line, instead):
        forget_requests()
        assert any(is_broken(seed, dialect) for dialect in dialects for seed in seeds)
    forget_requests()


def forget_requests():
    """Forget what was read of earlier requests: a variant before this one may have read them."""
    client_request._seen.clear()
    client_request._recent._requests.clear()


def is_broken(seed, dialect=""):
    """Whether a program breaks the law, or the code that plays it."""
    try:
        program = draw_program(seed, dialect=dialect)
        laws.transparent(play_program(program, at_once=seed % 2 == 1))
    except (AssertionError, FoldlineError, IndexError):
        return True
    return False


class Faithful:
    """A proxy that makes legal edits at random, on the client's bytes, by other code than ours."""

    def __init__(self, _store, setting) -> None:
        self.rng, self.setting = Random(7), setting
        self.edits: Counter[str] = Counter()

    async def ask(self, _dialect, body, caller, *, streams=False):  # noqa: ARG002 - a proxy's
        """What goes upstream."""
        owners = sorted({one[:2] for one in canaries_in(body.decode())})
        sent = body
        odd = (b"previous_message_id", b"previous_response_id", b"cached_content", b'"user":"a"')
        odd = (*odd, b"previous_interaction_id")
        if not any(one in body for one in odd):
            sent = self.edit(body)
        patches = ("changed",) if sent != body else ()
        is_own = caller.session or caller.family or "of" in caller.key
        whose = () if is_own else owners[:1]  # an ideal that only canaries make possible
        session = f"{caller.session} {caller.family or caller.key} {whose}"
        return Call(sent, session=session, patches=patches)

    async def answer(self, _call, _status, _chunks):
        """Take in a response."""
        return False

    async def leave(self, call):
        """Nothing came back."""

    def edit(self, body: bytes) -> bytes:
        """The client's bytes, with some legal edits."""
        text = body.decode()
        if self.setting.window < 10_000 and self.rng.random() < 0.2:
            limit = r'("max(?:_(?:completion_|output_)?tokens|OutputTokens)": ?)32000'
            text = re.sub(limit, r"\g<1>500", text)
        whole = next(one for one in split_object(text) if one.name in LISTS)
        if not isinstance(whole.value, list):
            return text.encode()
        messages = split_list(text, whole.start)
        places = self.places(messages)
        out = []
        at = whole.start
        run = self.rng.choice(places) if places and self.rng.random() < 0.5 else None
        newest = max(
            (at for at, one in enumerate(messages) if role_of(one.value) == "assistant"), default=-1
        )
        for place, one in enumerate(messages):
            lead = text[at : one.start]
            at = one.end
            if run and run[0] <= place < run[1]:
                if place == run[0]:
                    inside = [each.value for each in messages[run[0] : run[1]]]
                    out.append(lead + self.handoff(inside))
                continue
            raw = text[one.start : one.end]
            out.append(lead + (raw if place == newest else self.patch(raw, one.value)))
        return (text[: whole.start] + "".join(out) + text[at:]).encode()

    def places(self, messages) -> list[tuple[int, int]]:
        """Runs that leave a valid body: they end before an answer, and not between a pair."""
        roles = [role_of(one.value) for one in messages]
        first = next(
            (at for at, role in enumerate(roles) if role not in ("system", "developer")), 0
        )
        if roles[first : first + 1] != ["user"]:
            return []
        newest = max(at for at, role in enumerate(roles) if role not in ("system", "developer"))
        ends = [
            at
            for at in range(first + 1, newest + 1)
            if roles[at] == "assistant" and roles[at - 1] != "assistant"
        ]
        return [(first, end) for end in ends]

    def handoff(self, inside) -> str:
        """What stands for a run, with its instructions and its last mark."""
        is_contents = "parts" in inside[0]
        words = [str(one["content"] if isinstance(one["content"], str) else one["content"][0]["text"])
                 for one in inside if role_of(one) in ("system", "developer")]  # fmt: skip
        said = next(iter(sorted(canaries_in(json.dumps(inside)))), None)
        quoted = "CANARY_{}_{}_{}_".format(*said) if said else ""
        text = "\n".join(["[handoff: log:0-9 was folded]", *words, quoted])
        marks = [*_marks_in(inside)]
        if inside[0].get("type") in ("user_input", "function_result"):
            return json.dumps({"type": "user_input", "content": [{"type": "text", "text": text}]})
        if is_contents:
            return json.dumps({"role": "user", "parts": [{"text": text}]})
        if marks:
            block = {"type": "text", "text": text, "cache_control": marks[-1]}
            return json.dumps({"role": "user", "content": [block]})
        return json.dumps({"role": "user", "content": text})

    def patch(self, raw: str, message) -> str:
        """A message, perhaps with long texts clipped and thoughts left out."""
        if role_of(message) in ("system", "developer") or self.rng.random() < 0.6:
            return raw
        if "parts" in message:
            return self.patch_parts(raw) if role_of(message) == "user" else raw
        if role_of(message) == "assistant" and "role" not in message:
            return raw  # a step, or an item, of a turn
        held = ("content", "output", "result")
        content = next((one for one in split_object(raw) if one.name in held), None)
        if content is None:
            return raw
        if isinstance(content.value, str):
            return (
                raw[: content.start]
                + self.clip(raw[content.start : content.end])
                + raw[content.end :]
            )
        if not isinstance(content.value, list):
            return raw
        blocks = split_list(raw, content.start)
        out, at = [], content.start
        kept = [one for one in blocks if one.value.get("type") != "thinking"]
        leaves = role_of(message) == "assistant" and kept and self.rng.random() < 0.5
        for place, one in enumerate(blocks):
            lead, at = raw[at : one.start], one.end
            if leaves and one.value.get("type") == "thinking":
                at = blocks[place + 1].start  # its comma goes with it
                out.append(lead)
                continue
            out.append(lead + self.clip_block(raw[one.start : one.end], one.value))
        return raw[: content.start] + "".join(out) + raw[at:]

    def patch_parts(self, raw: str) -> str:
        """A content of Gemini's, its text and its results cut."""
        listed = next(one for one in split_object(raw) if one.name == "parts")
        parts = split_list(raw, listed.start)
        texts = [one for one in parts if "text" in one.value]
        said = "".join(one.value["text"] for one in texts)
        out, at = [], listed.start
        cuts = len(said) > 200 and self.rng.random() < 0.7
        for one in parts:
            lead, at = raw[at : one.start], one.end
            if cuts and one in texts[1:]:
                continue
            part = raw[one.start : one.end]
            if cuts and one in texts:
                part = '{"text":' + self.clip(json.dumps(said)) + "}"
            name = next((name for name in one.value if name.startswith("function")), "")
            if name:
                given = one.value[name]
                (kind, text), *more = given["response"].items()
                words = json.dumps(text)
                if (clipped := self.clip(words)) != words:
                    kind = "output" if more else kind
                    said_now = {**given, "response": {kind: json.loads(clipped)}}
                    part = json.dumps({**one.value, name: said_now})
            out.append(lead + part)
        return raw[: listed.start] + "".join(out) + raw[at:]

    def clip_block(self, raw: str, block) -> str:
        """A block with its text cut."""
        name = {"text": "text", "input_text": "text", "tool_result": "content"}.get(
            str(block.get("type"))
        )
        if name is None:
            return raw
        value = next(one for one in split_object(raw) if one.name == name)
        if not isinstance(value.value, str):
            inner = split_list(raw, value.start)[0]
            new = self.clip_block(raw[inner.start : inner.end], inner.value)
            return raw[: inner.start] + new + raw[inner.end :]
        return raw[: value.start] + self.clip(raw[value.start : value.end]) + raw[value.end :]

    def clip(self, raw: str) -> str:
        """A text, cut or masked if it is long."""
        text = json.loads(raw)
        if len(text) < 200:
            return raw
        if self.rng.random() < 0.3:
            return json.dumps(f"[result masked — ~9 tokens removed]\n[it began: {text[:20]!r}]")
        return json.dumps(f"{text[:60]}\n[truncated: kept first ~9 of ~99 tokens]\n{text[-40:]}")


@given(programs())
def test_legal_edits_pass(program):
    """An oracle that refuses what is allowed would be of no use."""
    result = play_program(program, open_one=Faithful)
    found = judge_program(result).violations
    assert not found, found[0]


def test_everything_happens():
    """Every action and every habit takes place, in programs of all dialects."""
    tags, dialects = Counter(), Counter()
    for number in range(300):
        result = play_program(draw_program(number), open_one=Faithful)
        tags += result.tags
        dialects.update(one.persona.dialect for one in result.sent)
    silent = {
        "echoes_thoughts",
        "parallel_calls",
        "tools",
        "say",
    }  # these leave no mark of their own
    wanted = ({*ACTIONS} | {*HABITS} | {*GEMINI_HABITS}) - silent
    assert not [name for name in wanted if tags[name] < 5], tags
    assert {*dialects} == {*DIALECTS}
    assert min(dialects.values()) > 200, dialects


MARK = {"type": "ephemeral"}
BIG = "a long line of words\n" * 40
BASE = {
    "model": "m",
    "max_tokens": 100,
    "thinking": {"type": "enabled", "budget_tokens": 90},
    "system": "You serve CANARY_1_0_1_.",
    "tools": [{"name": "run", "input_schema": {"type": "object"}}],
    "x_unknown": [1, 2.5],
    "messages": [
        {"role": "user", "content": "Hi CANARY_1_0_2_"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hello"}]},
        {"role": "user", "content": [{"type": "text", "text": BIG, "cache_control": MARK}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": BIG}]},
        {"role": "assistant", "content": "Done"},
        {"role": "system", "content": "From now on be brief, CANARY_1_0_3_."},
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": "Wait"},
        {"role": "user", "content": "Go on. " + BIG},
    ],
}  # fmt: skip
CLIP = f"{BIG[:60]}\n[truncated: kept first ~9 of ~99 tokens]"


def changed(*path, to=None, drop=False, insert=None):
    """The body with one thing changed."""
    body = json.loads(json.dumps(BASE))
    *way, last = path
    inside = body
    for name in way:
        inside = inside[name]
    if drop:
        del inside[last]
    elif insert is not None:
        inside.insert(last, insert)
    else:
        inside[last] = to
    return body


def folded(lo: int, hi: int, words: str = "[handoff: log:0-9 was folded]", **more) -> dict:
    """The body with a handoff for some of its messages."""
    body = json.loads(json.dumps(BASE))
    body["messages"][lo:hi] = [{"role": "user", "content": words, **more}]
    return body


def judge(body: dict | bytes, *, patches=("one",)):
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return judge_request(
        json.dumps(BASE).encode(), sent, dialect="anthropic", patches=patches, owner=(1, 0)
    )


def judge_between(asked: list, sent: list):
    """The same of other messages."""
    bodies = (json.dumps({**BASE, "messages": one}).encode() for one in (asked, sent))
    return judge_request(*bodies, dialect="anthropic", patches=("one",), owner=(1, 0))


M = "messages"
NOTE = {"role": "system", "content": "Be brief."}
ALLOWED = {
    "the same": (BASE, ()),
    "a lower limit": (changed("max_tokens", to=50), ("one",)),
    "a smaller budget": (changed("thinking", "budget_tokens", to=50), ("one",)),
    "a clip": (changed(M, 2, "content", 0, "text", to=CLIP), ("one",)),
    "a clipped result": (changed(M, 4, "content", 0, "content", to=CLIP), ("one",)),
    "a stub as a list": (changed(M, 4, "content", 0, "content", to=[{"type": "text", "text": "[result masked]"}]), ("one",)),
    "the newest message clipped": (changed(M, 9, "content", to=f"Go on. {CLIP}"), ("one",)),
    "a thought left out": (changed(M, 1, "content", 0, drop=True), ("one",)),
    "a fold": (folded(0, 3), ("one",)),
    "a fold with its mark": (folded(0, 3, [{"type": "text", "text": "[handoff: x]", "cache_control": MARK}]), ("one",)),
    "a fold over instructions": (folded(0, 8, "[handoff: x]\nFrom now on be brief, CANARY_1_0_3_."), ("one",)),
}  # fmt: skip
FORBIDDEN = {
    "a change that nobody reports": ("report", lambda: judge(changed("max_tokens", to=50), patches=())),
    "a report of nothing": ("report", lambda: judge(BASE)),
    "another's words": ("foreign", lambda: judge(folded(0, 3, "[handoff: x] CANARY_2_0_1_"))),
    "words of another conversation": ("foreign", lambda: judge(folded(0, 3, "[handoff: x] CANARY_1_1_1_"))),
    "words of an older request": ("stale", lambda: judge(changed("system", to="CANARY_1_0_1_ CANARY_1_0_9_"))),
    "another system prompt": ("fields", lambda: judge(changed("system", to="You serve CANARY_1_0_1_. "))),
    "system as a list": ("fields", lambda: judge(changed("system", to=[{"type": "text", "text": "You serve CANARY_1_0_1_."}]))),
    "a mark on a tool": ("fields", lambda: judge(changed("tools", 0, "cache_control", to=MARK))),
    "a limit raised": ("fields", lambda: judge(changed("max_tokens", to=200))),
    "a limit of nothing": ("fields", lambda: judge(changed("max_tokens", to=0))),
    "a limit taken away": ("fields", lambda: judge(changed("max_tokens", drop=True))),
    "thinking of another kind": ("fields", lambda: judge(changed("thinking", "type", to="adaptive"))),
    "a field lost": ("fields", lambda: judge(changed("x_unknown", drop=True))),
    "a number written otherwise": ("fields", lambda: judge(json.dumps(BASE).replace("2.5", "2.50").encode())),
    "fields in another order": ("fields", lambda: judge(dict(reversed(BASE.items())))),
    "other blanks": ("separators", lambda: judge(json.dumps(BASE).replace('"m", "max', '"m","max').encode())),
    "other blanks between messages": ("separators", lambda: judge(json.dumps(BASE).replace('}, {"role": "user", "content": "And', '},{"role": "user", "content": "And').encode())),
    "other blanks in a message": ("message", lambda: judge(json.dumps(BASE).replace('"content": "And', '"content":"And').encode())),
    "another role": ("role", lambda: judge(changed(M, 6, "role", to="user"))),
    "words changed": ("clip", lambda: judge(changed(M, 7, "content", to="And then?"))),
    "a clip with a new word": ("clip", lambda: judge(changed(M, 2, "content", 0, "text", to=f"{CLIP}\nnew words"))),
    "a clip that says nothing of it": ("clip", lambda: judge(changed(M, 2, "content", 0, "text", to=BIG[:60]))),
    "a string made a list": ("message", lambda: judge(changed(M, 0, "content", to=[{"type": "text", "text": "Hi CANARY_1_0_2_"}]))),
    "a mark taken off": ("message", lambda: judge(changed(M, 2, "content", 0, "cache_control", drop=True))),
    "a mark put on": ("message", lambda: judge(changed(M, 1, "content", 1, "cache_control", to=MARK))),
    "a call changed": ("message", lambda: judge(changed(M, 3, "content", 0, "input", to={"a": 1}))),
    "a block left out": ("message", lambda: judge(changed(M, 1, "content", 1, drop=True))),
    "a message left out": ("order", lambda: judge(changed(M, 7, drop=True))),
    "a message added": ("clip", lambda: judge(changed(M, 7, insert={"role": "user", "content": "[further instructions]"}))),
    "two messages in another order": ("order", lambda: judge({**BASE, M: [*BASE[M][:5], BASE[M][6], BASE[M][5], *BASE[M][7:]]})),
    "the newest message folded": ("newest", lambda: judge(folded(0, 10, "[handoff: x]\nFrom now on be brief, CANARY_1_0_3_."))),
    "instructions lost in a fold": ("system", lambda: judge(folded(0, 8))),
    "a mark from nowhere on a handoff": ("marks", lambda: judge(folded(0, 1, [{"type": "text", "text": "[handoff: x]", "cache_control": MARK}]))),
    "a handoff that replaces nothing": ("order", lambda: judge(changed(M, 0, insert={"role": "user", "content": "[handoff: x]"}))),
    "a handoff with more than words": ("handoff", lambda: judge(folded(0, 3, name="x"))),
    "a handoff with blocks behind it": ("handoff", lambda: judge(folded(0, 3, [{"type": "text", "text": "[handoff: x]"}, {"type": "text", "text": "more"}]))),
    "the user's newest words folded before instructions": ("newest", lambda: judge_between([*BASE[M][:2], *BASE[M][7:8], NOTE], [{"role": "user", "content": "[handoff: x]"}, NOTE])),
    "a thought lost in a loop": ("thinking", lambda: judge_between(*([*BASE[M][:1], {"role": "assistant", "content": [*thought, *BASE[M][3]["content"]]}, BASE[M][4]] for thought in (BASE[M][1]["content"][:1], [])))),
    "a handoff of the model": ("handoff", lambda: judge(changed(M, 1, to={"role": "assistant", "content": "[handoff: x]"}))),
    "words from behind a run": ("handoff", lambda: judge(folded(0, 1, "[handoff: x] CANARY_1_0_1_"))),
    "a pair cut in two": ("valid", lambda: judge(folded(0, 4))),
    "no JSON": ("fields", lambda: judge(b"{")),
}  # fmt: skip


@pytest.mark.parametrize("what", ALLOWED)
def test_allows(what):
    body, patches = ALLOWED[what]
    found = judge(body, patches=patches).violations
    # A fold behind which the user speaks, or instructions stand, is judged by the validator's own rules.
    assert not [one for one in found if one.rule != "valid"], found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_forbids(what):
    """Every change that is not allowed is found, by the rule that it breaks."""
    rule, made = FORBIDDEN[what]
    assert rule in {one.rule for one in made().violations}, made()


CALL = {"functionCall": {"id": "c", "name": "run", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
GEMINI_BASE = {
    "systemInstruction": {"parts": [{"text": "You serve CANARY_1_0_1_."}]},
    "tools": [{"functionDeclarations": [{"name": "run"}]}],
    "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100},
    "contents": [
        {"role": "user", "parts": [{"text": "Hi CANARY_1_0_2_"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "Hello"}]},
        {"parts": [{"text": BIG}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}, {"text": BIG}]},
        {"role": "model", "parts": [{"text": BIG}, CALL, {"function_call": {"name": "run", "args": {}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "c", "name": "run", "response": {"output": BIG}}},
            {"function_response": {"name": "run", "response": {"error": BIG}}}]},
        {"role": "model", "parts": [{"text": "Done"}]},
        {"role": "user", "parts": [{"text": "And now?"}]},
        {"role": "model", "parts": [{"text": "Wait"}]},
        {"role": "user", "parts": [{"text": "Go on. " + BIG}]},
    ],
}  # fmt: skip
C = "contents"
BARE = {"functionCall": {"name": "run", "args": {}}}
EMPTIED = {**CALL, "functionCall": {**CALL["functionCall"], "args": {}}}


def judge_contents(at: int, *contents, to: int | None = None, **fields):
    """What is found where some contents become others, and some fields too."""
    body = {**json.loads(json.dumps(GEMINI_BASE)), **fields}
    body[C][at : at + 1 if to is None else to] = contents
    asked, sent = (json.dumps(one).encode() for one in (GEMINI_BASE, body))
    return judge_request(asked, sent, dialect="gemini", patches=("one",), owner=(1, 0))


def said(role: str, *parts) -> dict:
    return {
        "role": role,
        "parts": [{"text": one} if isinstance(one, str) else one for one in parts],
    }


def results(one: dict, two: dict, name: str = "run") -> dict:
    first = {"functionResponse": {"id": "c", "name": name, "response": one}}
    return said("user", first, {"function_response": {"name": "run", "response": two}})


def stub(*calls, text: str = "[answer masked]") -> dict:
    return said("model", text, *calls)


IMAGE = GEMINI_BASE[C][2]["parts"][1]
SAME = (0, GEMINI_BASE[C][0])
HEARD, FAILED = {"output": BIG}, {"error": BIG}
GEMINI_ALLOWED = {
    "a lower limit": lambda: judge_contents(*SAME, generationConfig={"temperature": 0.5, "maxOutputTokens": 50}),
    "a clip of two texts": lambda: judge_contents(2, {"parts": [{"text": CLIP}, IMAGE]}),
    "a clipped result": lambda: judge_contents(4, results({"output": CLIP}, FAILED)),
    "two results clipped": lambda: judge_contents(4, results({"output": CLIP}, {"error": CLIP})),
    "an answer masked": lambda: judge_contents(3, stub(EMPTIED, BARE)),
    "the newest content clipped": lambda: judge_contents(8, said("user", f"Go on. {CLIP}")),
    "a fold": lambda: judge_contents(0, said("user", "[handoff: x]"), to=3),
}  # fmt: skip
GEMINI_FORBIDDEN = {
    "a limit raised": ("fields", lambda: judge_contents(*SAME, generationConfig={"temperature": 0.5, "maxOutputTokens": 200})),
    "a limit taken away": ("fields", lambda: judge_contents(*SAME, generationConfig={"temperature": 0.5})),
    "another temperature": ("fields", lambda: judge_contents(*SAME, generationConfig={"temperature": 0.4, "maxOutputTokens": 50})),
    "another system prompt": ("fields", lambda: judge_contents(*SAME, systemInstruction={"parts": [{"text": "CANARY_1_0_1_"}]})),
    "a role put in": ("role", lambda: judge_contents(2, said("user", CLIP, IMAGE))),
    "another role": ("role", lambda: judge_contents(6, said("model", "And now?"))),
    "words changed": ("clip", lambda: judge_contents(6, said("user", "And then?"))),
    "a clip with a new word": ("clip", lambda: judge_contents(2, {"parts": [{"text": f"{CLIP}\nnew words"}, IMAGE]})),
    "a text beside its clip": ("clip", lambda: judge_contents(2, {"parts": [{"text": CLIP}, IMAGE, {"text": BIG}]})),
    "an image lost": ("message", lambda: judge_contents(2, {"parts": [{"text": CLIP}]})),
    "a text left out": ("message", lambda: judge_contents(2, {"parts": [{"text": BIG}, IMAGE]})),
    "a clip that is a thought": ("message", lambda: judge_contents(2, {"parts": [{"text": CLIP, "thought": True}, IMAGE]})),
    "a thought left out": ("clip", lambda: judge_contents(1, said("model", "Hello"))),
    "a result of another call": ("message", lambda: judge_contents(4, results({"output": CLIP}, FAILED, name="other"))),
    "a failure that went well": ("message", lambda: judge_contents(4, results(HEARD, {"output": CLIP}))),
    "a result of more": ("message", lambda: judge_contents(4, results({"output": CLIP, "more": 1}, FAILED))),
    "a result with a new word": ("clip", lambda: judge_contents(4, results({"output": f"{CLIP}\nnew words"}, FAILED))),
    "a result left out": ("message", lambda: judge_contents(4, said("user", GEMINI_BASE[C][4]["parts"][0]))),
    "a masked answer without its signature": ("message", lambda: judge_contents(3, stub({"functionCall": EMPTIED["functionCall"]}, BARE))),
    "a masked answer without a call": ("message", lambda: judge_contents(3, stub(EMPTIED))),
    "a masked answer with arguments": ("message", lambda: judge_contents(3, stub(CALL, BARE))),
    "a masked answer that says nothing of it": ("clip", lambda: judge_contents(3, stub(EMPTIED, BARE, text="a long"))),
    "a content left out": ("order", lambda: judge_contents(6, to=7)),
    "the newest content folded": ("newest", lambda: judge_contents(0, said("user", "[handoff: x]"), to=9)),
    "a handoff of the model": ("handoff", lambda: judge_contents(1, said("model", "[handoff: x]"))),
    "a handoff with parts behind it": ("handoff", lambda: judge_contents(0, said("user", "[handoff: x]", "more"), to=3)),
    "another's words": ("foreign", lambda: judge_contents(0, said("user", "[handoff: x] CANARY_2_0_1_"), to=3)),
    "a pair cut in two": ("valid", lambda: judge_contents(0, said("user", "[handoff: x]"), to=4)),
}  # fmt: skip


@pytest.mark.parametrize("what", GEMINI_ALLOWED)
def test_allows_of_gemini(what):
    found = GEMINI_ALLOWED[what]().violations
    assert not found, found


@pytest.mark.parametrize("what", GEMINI_FORBIDDEN)
def test_forbids_of_gemini(what):
    """The same of contents, which have parts and no blocks."""
    rule, made = GEMINI_FORBIDDEN[what]
    assert rule in {one.rule for one in made().violations}, made()


@given(st.integers(0, 1 << 30))
def test_a_program_is_its_data(number):
    """The same program makes the same bytes, so that what was found can be played again."""
    program = draw_program(number)
    first, second = (play_program(program, open_one=Faithful) for _ in range(2))
    assert [one.asked for one in first.sent] == [one.asked for one in second.sent]


def test_handoffs_are_known_by_their_first_words():
    """The oracle looks for the words that folds are written with."""
    assert HANDOFF.match(handoff.build_handoff(Range(0, 3), handoff.Material(), cap=200).text)
    assert HANDOFF.match(handoff.build_omission_notice(Range(0, 3), 4).text)
    plain = handoff.build_handoff(Range(0, 3), handoff.Material(), cap=200)
    assert HANDOFF.match(handoff.add_acknowledgement(plain).text)


TEXT, PIXEL = {"type": "text", "text": BIG}, {"type": "image", "mime_type": "image/png", "data": "iVBO"}  # fmt: skip
THOUGHT = {"type": "thought", "signature": "c2ln"}
STEP_BASE = {
    "model": "m",
    "generation_config": {"temperature": 0.5, "max_output_tokens": 100},
    "system_instruction": "You serve CANARY_1_0_1_.",
    "input": [
        {"type": "user_input", "content": [{"type": "text", "text": "Hi CANARY_1_0_2_"}]},
        {"type": "model_output", "content": [{"type": "text", "text": "Hello"}]},
        {"type": "user_input", "content": [TEXT, PIXEL, TEXT]},
        THOUGHT,
        {"type": "model_output", "content": [TEXT]},
        {"type": "x_unknown", "x": 1},
        {"type": "function_call", "id": "c", "name": "run", "arguments": {"a": 1}},
        {"type": "function_call", "id": "d", "name": "run", "arguments": {}},
        {"type": "function_result", "call_id": "c", "name": "run", "result": BIG},
        {"type": "function_result", "call_id": "d", "result": [TEXT, PIXEL], "is_error": True},
        {"type": "model_output", "content": [{"type": "text", "text": "Done"}]},
        {"type": "user_input", "content": "And now?"},
        {"type": "model_output", "content": [{"type": "text", "text": "Wait"}]},
        {"type": "user_input", "content": [{"type": "text", "text": "Go on. " + BIG}]},
    ],
}  # fmt: skip
I = "input"  # noqa: E741 - as M and C


def judge_steps(at: int, *steps, to: int | None = None, **fields):
    """What is found where some steps become others, and some fields too."""
    body = {**json.loads(json.dumps(STEP_BASE)), **fields}
    body[I][at : at + 1 if to is None else to] = steps
    asked, sent = (json.dumps(one).encode() for one in (STEP_BASE, body))
    return judge_request(asked, sent, dialect="gemini-interactions", patches=("one",), owner=(1, 0))


def judge_input(asked, sent):
    """The same of inputs that stand alone."""
    bodies = (json.dumps({**STEP_BASE, I: one}).encode() for one in (asked, sent))
    return judge_request(*bodies, dialect="gemini-interactions", patches=("one",), owner=(1, 0))


def step(at: int, **fields) -> dict:
    return {**STEP_BASE[I][at], **fields}


def words(text: str) -> dict:
    return {"type": "text", "text": text}


def told(text: str, kind: str = "user_input", *more) -> dict:
    return {"type": kind, "content": [words(text), *more]}


CALLS = (step(6, arguments={}), step(7))
MASKED = told("[answer masked]", "model_output")
AS_IS = (0, STEP_BASE[I][0])
STEPS_ALLOWED = {
    "a lower limit": lambda: judge_steps(*AS_IS, generation_config={"temperature": 0.5, "max_output_tokens": 50}),
    "a clip of two texts": lambda: judge_steps(2, told(CLIP, "user_input", PIXEL)),
    "a clipped result": lambda: judge_steps(8, step(8, result=CLIP)),
    "a clipped result with an image": lambda: judge_steps(9, step(9, result=[words(CLIP), PIXEL])),
    "a masked result without its image": lambda: judge_steps(9, step(9, result="[result masked]")),
    "a turn masked": lambda: judge_steps(3, MASKED, THOUGHT, *CALLS, to=8),
    "the newest step clipped": lambda: judge_steps(13, told(f"Go on. {CLIP}")),
    "a fold": lambda: judge_steps(0, told("[handoff: x]"), to=3),
    "a fold over a turn": lambda: judge_steps(2, told("[handoff: x]"), to=10),
    "a text alone clipped": lambda: judge_input(BIG, CLIP),
    "a content alone clipped": lambda: judge_input(TEXT, words(CLIP)),
}  # fmt: skip
STEPS_FORBIDDEN = {
    "a limit raised": ("fields", lambda: judge_steps(*AS_IS, generation_config={"temperature": 0.5, "max_output_tokens": 200})),
    "another temperature": ("fields", lambda: judge_steps(*AS_IS, generation_config={"temperature": 0.4, "max_output_tokens": 50})),
    "another system prompt": ("fields", lambda: judge_steps(*AS_IS, system_instruction="CANARY_1_0_1_")),
    "a text made a content": ("fields", lambda: judge_input(BIG, words(CLIP))),
    "a text made steps": ("fields", lambda: judge_input(BIG, [told(CLIP)])),
    "a content of another type": ("message", lambda: judge_input(TEXT, {"type": "txt", "text": CLIP})),
    "words changed": ("clip", lambda: judge_steps(11, step(11, content="And then?"))),
    "a string made a list": ("message", lambda: judge_steps(11, told("And now?"))),
    "another's step": ("role", lambda: judge_steps(10, step(10, type="user_input"))),
    "a clip with a new word": ("clip", lambda: judge_steps(2, told(f"{CLIP}\nnew words", "user_input", PIXEL))),
    "an image lost": ("message", lambda: judge_steps(2, told(CLIP))),
    "a result that lost its image": ("message", lambda: judge_steps(9, step(9, result=[words(CLIP)]))),
    "a result of another call": ("message", lambda: judge_steps(8, step(8, result=CLIP, call_id="e"))),
    "a failure that went well": ("message", lambda: judge_steps(9, step(9, result=[words(CLIP), PIXEL], is_error=False))),
    "a result left out": ("order", lambda: judge_steps(8, to=9)),
    "an answer changed": ("message", lambda: judge_steps(10, told("[Done]", "model_output", PIXEL))),
    "a thought left out": ("message", lambda: judge_steps(3, to=4)),
    "an unknown step left out": ("message", lambda: judge_steps(5, to=6)),
    "a call left out": ("message", lambda: judge_steps(7, to=8)),
    "a masked turn without its thought": ("message", lambda: judge_steps(3, MASKED, *CALLS, to=8)),
    "a masked turn without a call": ("message", lambda: judge_steps(3, MASKED, THOUGHT, CALLS[0], to=8)),
    "a masked turn with arguments": ("message", lambda: judge_steps(3, MASKED, THOUGHT, *STEP_BASE[I][6:8], to=8)),
    "a masked turn that says nothing of it": ("clip", lambda: judge_steps(3, told("a long", "model_output"), THOUGHT, *CALLS, to=8)),
    "a step left out": ("message", lambda: judge_steps(11, to=12)),
    "a fold that ends inside a turn": ("role", lambda: judge_steps(0, told("[handoff: x]"), to=5)),
    "a fold that begins inside a turn": ("message", lambda: judge_steps(5, told("[handoff: x]"), to=10)),
    "a pair cut in two": ("valid", lambda: judge_steps(0, told("[handoff: x]"), to=8)),
    "the newest step folded": ("newest", lambda: judge_steps(0, told("[handoff: x]"), to=14)),
    "a handoff of the model": ("handoff", lambda: judge_steps(1, told("[handoff: x]", "model_output"))),
    "a handoff with contents behind it": ("handoff", lambda: judge_steps(0, told("[handoff: x]", "user_input", PIXEL), to=3)),
    "another's words": ("foreign", lambda: judge_steps(0, told("[handoff: x] CANARY_2_0_1_"), to=3)),
    "other blanks between steps": ("separators", lambda: judge_request(json.dumps(STEP_BASE).encode(), json.dumps(STEP_BASE).replace('}, {"type": "user_input", "content": "And', '},{"type": "user_input", "content": "And').encode(), dialect="gemini-interactions", patches=("one",), owner=(1, 0))),
}  # fmt: skip


@pytest.mark.parametrize("what", STEPS_ALLOWED)
def test_allows_of_interactions(what):
    found = STEPS_ALLOWED[what]().violations
    assert not found, found


@pytest.mark.parametrize("what", STEPS_FORBIDDEN)
def test_forbids_of_interactions(what):
    rule, made = STEPS_FORBIDDEN[what]
    assert rule in {one.rule for one in made().violations}, made()
