"""What a proxied request may become on its way: an oracle that shares no code with the proxy.

Compares the body that a client sent with the body that went upstream, by the places of their bytes,
and says everything that law 9 forbids. Reads JSON with the standard library alone. All that it
takes from Foldline are the validators of its dialects, which know nothing of proxies; the types of
the SDKs are asked too.

    found = judge_request(asked, sent, patches=exchange.patches, dialect="openai-chat")

Every `Violation` names its rule, so that a program can be shrunk while it breaks the same one.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any, Literal, NamedTuple, cast

import jury
from client_habits import GEMINI_MODEL, DialectName, Json, Message
from client_programs import MESSAGES, ProgramResult, Sent

from foldline.dialects.base import GEMINI, get_dialect

CANARY = re.compile(r"CANARY_(\d+)_(\d+)_(\d+)_")
"""Words that only one conversation has: of a client, of its conversation, and a number."""
HANDOFF = re.compile(
    r"(?:\[Conversation summary from compaction\]: )?\[handoff: |\[conversation truncated"
)
"""How the text of a message begins that stands for a run of the client's messages."""
REPLY = "Understood, I have the context"
"""How the answer begins that some presets put behind a handoff."""
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
CONFIGS = ("generationConfig", "generation_config")
"""The fields that hold a limit inside."""
LISTS = ("messages", "input", "contents")
"""The fields that hold a request's messages, by the dialects that there are."""
FORGIVEN: frozenset[str] = frozenset({"turns"})  # providers join turns of one role
"""Rules of the validators that an edited body may break although the client's own does not."""
_THOUGHTS = ("thinking", "redacted_thinking")
_TEXTS = ("text", "input_text", "output_text")
_INSTRUCTIONS = ("system", "developer")
_STEPS = ("user_input", "function_result", "model_output", "thought")
_CONTENTS = ("text", "image", "audio", "document", "video")
_COUNTED = "Total output lines: "  # the first line of a clip by lines
_MOVED = re.compile(r',"cache_control":\{[^{}]*\}\}$')
_BLANK = re.compile(r"[ \t\n\r]*")
_BETWEEN = re.compile(r"[ \t\n\r]*,?[ \t\n\r]*")
_decode = json.JSONDecoder(strict=False).raw_decode


class Violation(NamedTuple):
    """A rule that was broken, and how."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Slice(NamedTuple):
    """A value inside a text: what it is called, where it is, and what it says."""

    name: str
    start: int
    end: int
    value: Any


@dataclass(slots=True)
class Verdict:
    """What became of one request."""

    violations: list[Violation] = field(default_factory=list[Violation])
    edits: Counter[str] = field(default_factory=Counter[str])
    """Handoffs, clips, masks, thoughts left out, limits lowered."""

    def add(self, rule: str, text: str) -> None:
        """Note that a rule is broken."""
        self.violations.append(Violation(rule, text))


def judge_program(result: ProgramResult) -> Verdict:
    """Everything that a program found: request by request, then sessions and what is stored."""
    whole = Verdict()
    for place, sent in enumerate(result.sent):
        at = f"request {place} of client {sent.client}{', healed' * sent.is_heal}: "
        found = judge_request(
            sent.asked,
            sent.sent,
            dialect=sent.persona.dialect,
            patches=sent.patches,
            owner=sent.owner,
        )
        if sent.tags and sent.sent != sent.asked:
            found.add("untouched", f"a body with {[*sent.tags]} was changed")
        _check_limit(sent, result.window, found)
        whole.violations += [Violation(one.rule, at + one.text) for one in found.violations]
        whole.edits += found.edits
    for fault in result.faults:
        whole.add(*fault.split(": ", 1))
    _check_sessions(result, whole)
    _check_storage(result, whole)
    return whole


def _check_limit(sent: Sent, window: int, verdict: Verdict) -> None:
    """A limit is lowered only where the request could not be sent otherwise."""
    bound = sent.persona.bound
    if verdict.edits["limit"] and bound and len(sent.asked) * 1.25 + bound <= window:
        verdict.add(
            "limit", f"{bound} was lowered: {len(sent.asked)} bytes in a window of {window}"
        )


def _check_sessions(result: ProgramResult, verdict: Verdict) -> None:
    """One linear client is one session; two keys are never in one."""
    callers: dict[str, set[tuple[str, str]]] = defaultdict(set)
    earlier: dict[tuple[int, int], list[Sent]] = defaultdict(list)
    for place, sent in enumerate(result.sent):
        if not sent.is_planned or sent.is_heal:
            continue
        persona = sent.persona
        whose = ("family", persona.family) if persona.family else ("key", persona.key)
        callers[sent.session].add(whose)
        if not sent.persona.is_linear:
            continue
        before = [one for one in earlier[sent.owner] if _is_continued(one, sent)]
        expected = {name for one in before for name in (one.session, one.answered_in) if name}
        # Where two logs begin alike nobody can tell whose it is: it may be a new one.
        is_one = len(expected) == 1 and not _is_return(earlier[sent.owner], sent)
        # The same holds for two clients behind one key that both begin with the same made-up pair.
        paired = [one for one in result.sent[:place] if "moving_pair" in one.persona.habits]
        mixed = {one.client for one in paired if one.session in expected} - {sent.client}
        is_one = is_one and not (mixed and "moving_pair" in persona.habits)
        if is_one and sent.session not in expected:
            verdict.add(
                "sessions",
                f"request {place} of client {sent.client}, which has one conversation, is in "
                f"{sent.session}, not in {sorted(expected)}",
            )
        earlier[sent.owner].append(sent)
    for session, several in callers.items():
        if max(Counter(kind for kind, _ in several).values()) > 1:
            verdict.add("scope", f"session {session} has requests of {sorted(several)}")


def _is_continued(one: Sent, two: Sent) -> bool:
    """Whether a request goes on with the history of another: a model's answer is in both.

    The same body while the first is in flight goes on with it too.
    """
    if two.is_retry and one.asked == two.asked:
        return True
    before: list[Message] = [*one.shown, *([one.answer] if one.answer else [])]
    for was, now in zip(before, two.shown, strict=False):
        if was.identity != now.identity:
            return False
        if now.role == "assistant" and not now.is_passing:
            return True
    return False


def _is_return(before: list[Sent], sent: Sent) -> bool:
    """Whether a request goes on, word for word, with a branch that its client had left.

    A linear client does so too: it regenerates, and the model gives the answer of before again.
    """

    def begins(one: Sent, two: Sent) -> bool:
        shown = [message.identity for message in one.shown]
        return shown == [message.identity for message in two.shown[: len(shown)]]

    def count_common(one: Sent, two: Sent) -> int:
        pairs = zip(one.shown, two.shown, strict=False)
        same = takewhile(lambda pair: pair[0].identity == pair[1].identity, pairs)
        return sum(1 for _ in same)

    if any(count_common(one, sent) > count_common(before[-1], sent) for one in before[:-1]):
        return True  # what stands at the end of every request stands at its old place again
    return any(
        begins(one, sent) and not begins(one, left) and len(left.shown) < len(one.shown)
        for at, one in enumerate(before)
        for left in before[at + 1 :]
    )


def _check_storage(result: ProgramResult, verdict: Verdict) -> None:
    """A session holds what its requests said once, however often they said it."""
    said: dict[str, dict[object, int]] = defaultdict(dict)
    for sent in result.sent:
        for message in (*sent.shown, *(one for one in (sent.answer, sent.cut) if one)):
            for session in {sent.session, sent.answered_in}:
                known = said[session].get(message.identity, 0)
                said[session][message.identity] = max(known, message.size)
    for session, stored in result.stored.items():
        sizes = said[session].values()
        # A message that is clipped has beside it what is shown: the room at most, of several bytes a token.
        clipped = sum(min(size, 6 * result.setting.window) for size in sizes)
        # A history in another order is stored once more.
        orders = 1 + sum(
            step.action in ("reorder", "compact", "edit", "drop") for step in result.program.steps
        )
        most = 1.5 * orders * sum(sizes) + clipped * orders + 2_000 + 150 * len(sizes) * orders
        if stored > most:
            verdict.add(
                "storage",
                f"session {session} holds {stored} bytes of {', '.join(MESSAGES)}; its requests "
                f"said {sum(sizes)} in {len(sizes)} messages",
            )


class Canary(NamedTuple):
    """Whose word it is."""

    client: int
    conversation: int
    number: int


def canaries_in(text: str) -> set[Canary]:
    """The canaries that stand in a text."""
    return {Canary(*map(int, found)) for found in CANARY.findall(text)}


def judge_request(
    asked: bytes,
    sent: bytes,
    *,
    dialect: DialectName,
    patches: Sequence[object],
    owner: tuple[int, int],
) -> Verdict:
    """Everything that is wrong with what became of a request of an owner."""
    verdict = Verdict()
    if sent == asked:
        if patches:
            verdict.add("report", f"patches are reported, none was made: {patches!r:.300}")
        return verdict
    if not patches:
        verdict.add(
            "report", f"the body was changed and no patch is reported; {_differ(asked, sent)}"
        )
    try:
        theirs, ours = asked.decode(), sent.decode()
        before, after = split_object(theirs), split_object(ours)
    except ValueError as fault:
        verdict.add("fields", f"the body cannot be read: {fault}")
        return verdict
    own, seen = canaries_in(theirs), canaries_in(ours)
    if foreign := sorted(one for one in seen - own if (one.client, one.conversation) != owner):
        verdict.add(
            "foreign", f"words of others in the request of {owner}: {_where(ours, foreign)}"
        )
    if stale := sorted(one for one in seen - own if (one.client, one.conversation) == owner):
        verdict.add("stale", f"words that this request does not have: {_where(ours, stale)}")
    _compare_fields(theirs, ours, before, after, verdict)
    bodies = json.loads(theirs), json.loads(ours)
    _check_faults(dialect, *bodies, verdict)
    if (
        _thinks_in_a_loop(bodies[0])
        and _is_in_a_loop(bodies[1])
        and not _thinks_in_a_loop(bodies[1])
    ):
        verdict.add("thinking", "the newest answer lost its thoughts, and its calls are under way")
    return verdict


def split_object(text: str, at: int = 0) -> list[Slice]:
    """The members of the object that begins at a place, in order, also those that come twice."""
    return [*_slices(text, at, "{}")]


def split_list(text: str, at: int) -> list[Slice]:
    """The elements of the list that begins at a place."""
    return [*_slices(text, at, "[]")]


def _slices(text: str, at: int, ends: str) -> Iterator[Slice]:
    at = _skip(text, at)
    if text[at : at + 1] != ends[0]:
        raise ValueError(f"no {ends} at {at}: {text[at : at + 40]!r}")
    at = _skip(text, at + 1)
    while text[at : at + 1] != ends[1]:
        name = ""
        if ends == "{}":
            name, at = _decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # past the colon
        value, end = _decode(text, at)
        yield Slice(name, at, end, value)
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != ends[1]:
            raise ValueError(f"no {ends[1]} at {at}: {text[at : at + 40]!r}")


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _compare_fields(
    theirs: str, ours: str, before: list[Slice], after: list[Slice], verdict: Verdict
) -> None:
    """Top-level fields: all, in order, byte for byte; messages and limits have their own rules."""
    names = [one.name for one in before], [one.name for one in after]
    if names[0] != names[1]:
        verdict.add("fields", f"the client's fields are {names[0]}, upstream got {names[1]}")
        pairs = [(one, two) for one in before for two in after if one.name == two.name]
    else:
        pairs = [*zip(before, after, strict=True)]
        gaps = _gaps(theirs, before), _gaps(ours, after)
        if gaps[0] != gaps[1]:
            verdict.add("separators", f"between fields: {gaps[0]!r:.200} became {gaps[1]!r:.200}")
    for one, two in pairs:
        raw, became = theirs[one.start : one.end], ours[two.start : two.end]
        if raw == became:
            continue
        if one.name in LISTS and raw.startswith("[") and became.startswith("["):
            _Messages(theirs, ours, one, two, verdict).compare()
        elif one.name == "input" and (raw[0], became[0]) in (('"', '"'), ("{", "{")):
            if raw.startswith("{"):  # a content alone
                found = _compare_block(raw, became)
            else:
                found = _compare_text(one.value, two.value, may_change_form=False)
            if isinstance(found, Violation):
                verdict.violations.append(found)
            else:
                verdict.edits.update(found)
        elif (one.name in LIMITS and _is_lowered(one.value, two.value)) or (
            one.name in CONFIGS and _is_lowered_inside(raw, became, LIMITS)
        ):
            verdict.edits["limit"] += 1
        elif one.name == "thinking" and _is_lowered_inside(raw, became, ("budget_tokens",)):
            verdict.edits["budget"] += (
                1  # for the fullest request of the conversation: in every one
            )
        elif (
            (one.name, two.value) == ("thinking", {"type": "disabled"})
            and _begins_thoughtless(json.loads(ours))
            and not _begins_thoughtless(json.loads(theirs))
        ):
            verdict.edits["thinking"] += 1
        else:
            verdict.add("fields", f"{one.name}: {_differ(raw.encode(), became.encode())}")


def _gaps(text: str, members: Sequence[Slice], start: int = 0, end: int | None = None) -> list[str]:
    """What stands between values: names, colons, commas, blanks."""
    ends = [start, *(one.end for one in members)]
    starts = [*(one.start for one in members), len(text) if end is None else end]
    return [text[one:two] for one, two in zip(ends, starts, strict=True)]


def _is_lowered(before: Any, after: Any) -> bool:
    return type(before) is int and type(after) is int and 0 < after < before


def _is_lowered_inside(raw: str, became: str, names: Sequence[str]) -> bool:
    """Whether two objects differ only in a limit of these names that is smaller now."""
    if not (raw.startswith("{") and became.startswith("{")):
        return False
    before, after = split_object(raw), split_object(became)
    if _gaps(raw, before) != _gaps(became, after):
        return False
    for one, two in zip(before, after, strict=True):
        same = raw[one.start : one.end] == became[two.start : two.end]
        if not same and not (one.name in names and _is_lowered(one.value, two.value)):
            return False
    return True


class _State(NamedTuple):
    """How many of the client's messages are accounted for, and by what the last of them was."""

    place: int
    last: Literal["kept", "handoff", "reply"]


class _Messages:
    """The client's messages and what upstream got, walked side by side.

    Two equal messages may stand in a list, so that a run has several possible ends: all of them are
    followed at once, and one that leads to the end is enough.
    """

    def __init__(self, theirs: str, ours: str, one: Slice, two: Slice, verdict: Verdict) -> None:
        self.theirs, self.ours, self.verdict = theirs, ours, verdict
        self.asked, self.sent = split_list(theirs, one.start), split_list(ours, two.start)
        self.is_steps = one.name == "input" and any(map(_is_step, self.asked))
        if self.is_steps:
            self.asked, self.sent = _join_turns(self.asked), _join_turns(self.sent)
        self.has_turns = one.name == "input" and not self.is_steps
        """Whether a turn of the model may be several items, which are never parted."""
        self.is_contents = one.name == "contents"
        self.raws = [theirs[each.start : each.end] for each in self.asked]
        self.before = _gaps(theirs, self.asked, one.start, one.end)
        self.after = _gaps(ours, self.sent, two.start, two.end)
        self.leading = _count_leading(self.asked)
        self.newest = len(self.asked) - 1 - _count_leading(self.asked[::-1])
        """Where the newest message is; instructions may stand behind it."""
        self.why: list[Violation] = []
        """Why the message that is looked at is none of those that are allowed."""
        self.hints: list[Violation] = []
        """Why the handoff before it stands for no longer run."""

    def compare(self) -> None:
        """Note what is wrong; else count the edits."""
        paths: dict[_State, Counter[str]] = {_State(0, "kept"): Counter()}
        for place, message in enumerate(self.sent):
            after_handoff = all(state.last != "kept" for state in paths)
            self.why = self.hints if after_handoff else []
            self.hints = []
            following: dict[_State, Counter[str]] = {}
            for state, edits in paths.items():
                for after, kind in self._steps(state, place, message):
                    following.setdefault(after, edits + Counter(kind))
            if not following:
                reached = sorted({state.place for state in paths})
                self._report(place, message, reached, is_folded=after_handoff)
                return
            paths = following
        whole = [state for state in paths if state.place == len(self.asked)]
        if not whole:
            left = max(state.place for state in paths)
            self.verdict.add(
                "newest" if left >= len(self.asked) - 1 else "messages",
                f"{len(self.asked) - left} of the client's messages are missing at the end: "
                f"{self.raws[left]!r:.300}",
            )
            return
        if self.after[-1] != self.before[-1]:
            self.verdict.add(
                "separators", f"{self.before[-1]!r} became {self.after[-1]!r} at the end"
            )
        self.verdict.edits += min((paths[state] for state in whole), key=lambda one: one.total())

    def _report(self, place: int, message: Slice, reached: list[int], *, is_folded: bool) -> None:
        """Note that a message upstream is none that may stand there, by the most telling rule."""
        got = self.ours[message.start : message.end]
        elsewhere = [at for at, raw in enumerate(self.raws) if raw == got]
        why = [*self.why]
        if elsewhere and not {*elsewhere} & {*reached}:
            is_lost = is_folded and min(elsewhere) > self.newest >= max(reached)
            rule = "newest" if is_lost else "order"
            if max(elsewhere) < min(reached):  # it was passed: what ends a run later says nothing
                why = [one for one in why if one.rule != "system"]
            why.append(Violation(rule, f"it is the client's messages{elsewhere}"))
        rule = min((one.rule for one in why), key=_RANK.index, default="messages")
        wanted = [self.raws[at][:200] for at in reached[:2] if at < len(self.raws)]
        told = "; ".join(dict.fromkeys(str(one) for one in why))
        self.verdict.add(
            rule,
            f"messages[{place}] of {len(self.sent)} upstream is none of the client's behind "
            f"{reached} of {len(self.asked)}: {got!r:.300}; expected {wanted}; {told:.700}",
        )

    def _steps(
        self, state: _State, place: int, message: Slice
    ) -> Iterator[tuple[_State, tuple[str, ...]]]:
        """What a message upstream may be, and where that leads."""
        raw = self.ours[message.start : message.end]
        text = _text_of(message.value)
        at = state.place
        if at < len(self.asked):
            if raw == self.raws[at]:
                if self._is_joined(state, place):
                    yield _State(at + 1, "kept"), ()
            else:
                compare = _compare_content if self.is_contents else _compare_message
                compare = _compare_step if self.is_steps else compare
                patched = compare(self.raws[at], raw)
                if isinstance(patched, Violation):
                    self.why.append(patched)
                elif self._is_joined(state, place):
                    yield _State(at + 1, "kept"), patched
        if HANDOFF.match(text):
            yield from self._runs(state, message, text)
        is_reply = role_of(message.value) == "assistant" and text.startswith(REPLY)
        if state.last == "handoff" and is_reply and not canaries_in(raw):
            yield _State(at, "reply"), ()

    def _is_joined(self, state: _State, place: int) -> bool:
        """Whether a message stands behind the one before it as it does in the client's body."""
        gap, own = self.after[place], self.before[state.place]
        fine = gap == own if state.last == "kept" else _BETWEEN.fullmatch(gap) is not None
        if not fine:
            self.why.append(Violation("separators", f"{own!r} became {gap!r}"))
        return fine

    def _runs(
        self, state: _State, message: Slice, text: str
    ) -> Iterator[tuple[_State, tuple[str, ...]]]:
        """The runs of the client's messages that a handoff may stand for; never the newest."""
        role = role_of(message.value) if self.is_steps else message.value.get("role")
        held = "parts" if self.is_contents else "content"
        blocks = _blocks_of(message.value.get(held))
        more = {*message.value} - {"type" if self.is_steps else "role", held}
        more |= {name for one in blocks for name in one} - {"type", "text", "cache_control"}
        if role not in ("user", *_INSTRUCTIONS) or more or len(blocks) > 1:
            why = (
                f"a handoff of the role {role!r}, of {len(blocks)} blocks, with {more or 'no'} more"
            )
            self.why.append(Violation("handoff", why))
            return
        mark, told = _mark_of_handoff(message.value), canaries_in(text)
        # A ledger may repeat what an older handoff of this request tells, and pins from before.
        known = {one for raw in self.raws[: state.place] for one in canaries_in(raw)}
        marks: list[Any] = []
        refused: list[Violation] = []
        found = False
        if state.last == "kept" and self._is_inside_turn(state.place):
            self.why.append(Violation("turn", f"a run begins inside a turn at {state.place}"))
            return
        for end in range(state.place, self.newest):
            inside = self.asked[end].value
            words = _texts_of(inside) if inside.get("role") in _INSTRUCTIONS else []
            lost = [one for one in words if one.strip() not in text]
            if end < self.leading or lost:
                why = f"{lost!r:.200} is not in the handoff" if lost else "it leads the list"
                refused.append(Violation("system", f"messages[{end}] is in no run: {why}"))
                break
            known |= canaries_in(self.raws[end])
            marks += [*_marks_in(inside)]
            if self._is_inside_turn(end + 1):
                why = f"messages{[end, end + 1]} are of one turn of the model"
                refused.append(Violation("turn", why))
            elif not told <= known:
                strange = sorted(told - known)[:4]
                why = f"messages{[state.place, end]} do not have the words {strange}"
                refused.append(Violation("handoff", why))
            elif mark is not None and (not marks or mark != marks[-1]):
                why = f"the handoff has {mark}, messages{[state.place, end]} have {marks}"
                refused.append(Violation("marks", why))
            else:
                found = True
                yield _State(end + 1, "handoff"), ("fold",)
        if found:  # words that a shorter run has not are no reason against a longer one
            self.hints += [one for one in refused if one.rule not in ("handoff", "turn")]
        else:
            self.why += refused

    def _is_inside_turn(self, place: int) -> bool:
        """Whether an item continues the model's turn of the item before it."""
        pair = self.asked[place - 1 : place + 1] if place else []
        roles = [role_of(cast("Json", one.value)) for one in pair]
        return self.has_turns and roles == ["assistant", "assistant"]


_RANK = (
    *("handoff", "marks", "system", "newest", "order", "turn"),
    *("separators", "role", "message", "clip", "messages"),
)
"""Which rule a message is said to break where several readings of it fail."""


def _count_leading(messages: Sequence[Slice]) -> int:
    """How many instructions a list of messages begins with."""
    roles = [cast("Json", one.value).get("role") for one in messages]
    return next((at for at, role in enumerate(roles) if role not in _INSTRUCTIONS), len(roles))


def role_of(message: Json) -> str:
    """Whose message it is; items without a role are the model's, or results.

    A content of Gemini's without a role is the user's, as is one that stands alone.
    """
    if "parts" in message:
        return "assistant" if message.get("role") == "model" else "user"
    if "role" in message:
        return str(message["role"])
    if message.get("type") in ("user_input", *_CONTENTS):
        return "user"
    if message.get("type") in ("model_output", "function_result"):
        return "assistant" if message["type"] == "model_output" else "tool"
    return "tool" if str(message.get("type")).endswith("_output") else "assistant"


def _is_step(one: Slice) -> bool:
    """Whether an element of an input is a step, or a content, of Google's Interactions."""
    return isinstance(one.value, dict) and one.value.get("type") in (*_STEPS, *_CONTENTS)


def _join_turns(steps: Sequence[Slice]) -> list[Slice]:
    """Steps, those of one turn of the model as one: its bytes from the first to the last."""
    found: list[Slice] = []
    for one in steps:
        if role_of(one.value) != "assistant":
            found.append(one)
            continue
        before: list[Json] = []
        start = one.start
        if found and "steps" in found[-1].value:
            last = found.pop()
            before, start = last.value["steps"], last.start
        turn = [*before, cast("Json", one.value)]
        said = next((each["content"] for each in turn if "content" in each), None)
        found.append(Slice("", start, one.end, {"type": "turn", "content": said, "steps": turn}))
    return found


def _compare_step(raw: str, became: str) -> tuple[str, ...] | Violation:
    """The edits that make one step, or one turn of steps, of another."""
    one, two = json.loads(f"[{raw}]"), json.loads(f"[{became}]")
    roles = role_of(one[0]), role_of(two[0])
    if roles[0] != roles[1]:
        return Violation("role", f"a step of the {roles[0]} became one of the {roles[1]}")
    if roles[0] == "assistant":
        return _compare_turn(one, two)
    if one[0]["type"] in _CONTENTS:
        return _compare_block(raw, became)
    before, after = split_object(raw), split_object(became)
    if _gaps(raw, before) != _gaps(became, after):
        return Violation("message", f"{[*one[0]]} became {[*two[0]]}, or its blanks differ")
    held = "result" if roles[0] == "tool" else "content"
    edits: list[str] = []
    for was, now in zip(before, after, strict=True):
        texts = raw[was.start : was.end], became[now.start : now.end]
        if texts[0] == texts[1]:
            continue
        if was.name != held:
            return Violation("message", f"{was.name}: {_differ(*map(str.encode, texts))}")
        if held == "result":
            found = _compare_result(was.value, now.value)
        elif all(text.startswith("[") for text in texts):
            found = _compare_blocks(*texts, is_answer=False)
        else:
            found = _compare_text(was.value, now.value, may_change_form=False)
        if isinstance(found, Violation):
            return found
        edits += found
    return tuple(edits)


def _compare_result(before: Any, after: Any) -> tuple[str, ...] | Violation:
    """Whether a result is another's clip, with its media, or a stub for it."""
    found = _compare_text(before, after, may_change_form=True)
    was, now = (
        [one for one in _blocks_of(given) if one.get("type") != "text"] for given in (before, after)
    )
    if was != now and (now or found != ("mask",)):
        return Violation("message", f"the media of a result: {was!r:.200} became {now!r:.200}")
    return found


def _compare_turn(one: list[Json], two: list[Json]) -> tuple[str, ...] | Violation:
    """Whether a turn became a stub: one text, its calls without arguments, thoughts before those."""
    calls = [at for at, step in enumerate(one) if step.get("type") == "function_call"]
    wanted: list[Json] = []
    for step in one[: calls[-1] + 1] if calls else ():
        if step.get("type") == "function_call":
            wanted.append({**step, "arguments": {}})
        elif step.get("type") == "thought":
            wanted.append(step)
    stub, *kept = two
    texts = _blocks_of(stub.get("content"))
    is_plain = {*stub} == {"type", "content"} and [{*each} for each in texts] == [{"type", "text"}]
    if stub["type"] != "model_output" or not is_plain or kept != wanted:
        return Violation("message", f"a turn became {two!r:.300}")
    words = "\n".join(_words_of(step.get("content")) for step in one)
    words += json.dumps(one, ensure_ascii=False)
    return _compare_text(words, texts[0]["text"], may_change_form=False)


def _compare_message(raw: str, became: str) -> tuple[str, ...] | Violation:
    """The edits that make one message of another; or why no edits that are allowed do."""
    before, after = split_object(raw), split_object(became)
    one, two = ({each.name: each.value for each in members} for members in (before, after))
    if one.get("role") != two.get("role"):
        return Violation("role", f"the role {one.get('role')!r} became {two.get('role')!r}")
    if _gaps(raw, before) != _gaps(became, after):
        return Violation("message", f"{[*one]} became {[*two]}, or its blanks differ")
    edits: list[str] = []
    for was, now in zip(before, after, strict=True):
        texts = raw[was.start : was.end], became[now.start : now.end]
        if texts[0] == texts[1]:
            continue
        if was.name != ("output" if "role" not in one else "content"):
            return Violation("message", f"{was.name}: {_differ(*map(str.encode, texts))}")
        role = role_of(one)
        if all(text.startswith("[") for text in texts) and role != "tool":
            found = _compare_blocks(*texts, is_answer=role == "assistant")
        else:
            found = _compare_text(was.value, now.value, may_change_form=role == "tool")
        if isinstance(found, Violation):
            return found
        edits += found
    return tuple(edits)


def _compare_blocks(raw: str, became: str, *, is_answer: bool) -> tuple[str, ...] | Violation:
    """The edits that make one list of blocks of another."""
    before, after = split_list(raw, 0), split_list(became, 0)
    edits: list[str] = []
    at = 0
    for now in after:
        text = became[now.start : now.end]
        while at < len(before) and is_answer and before[at].value.get("type") in _THOUGHTS:
            if raw[before[at].start : before[at].end] == text:
                break
            edits.append("thought")
            at += 1
        # Of a message that is cut, its texts become one, which takes over their mark.
        while (
            at < len(before) and edits and not is_answer and before[at].value.get("type") in _TEXTS
        ):
            if raw[before[at].start : before[at].end] == text:
                break
            at += 1
        if at == len(before):
            return Violation("message", f"a block that the client's has not: {text!r:.200}")
        was = before[at]
        if raw[was.start : was.end] != text:
            unmarked = text
            if "cache_control" not in was.value:
                unmarked = _MOVED.sub("}", text)
            found = _compare_block(raw[was.start : was.end], unmarked)
            if isinstance(found, Violation):
                return found
            edits += found
        at += 1
    left = [one.value for one in before[at:]]
    if edits and not is_answer:
        left = [one for one in left if one.get("type") not in _TEXTS]
    if any(not is_answer or one.get("type") not in _THOUGHTS for one in left):
        return Violation("message", f"blocks are missing: {left!r:.200}")
    edits += ["thought"] * len(left)
    if not left and len(before) == len(after) and _gaps(raw, before) != _gaps(became, after):
        return Violation("separators", "between blocks")
    return tuple(edits)


def _compare_block(raw: str, became: str) -> tuple[str, ...] | Violation:
    """The edits that make one content block of another."""
    if not (raw.startswith("{") and became.startswith("{")):
        return Violation("message", f"{raw!r:.200} became {became!r:.200}")
    before, after = split_object(raw), split_object(became)
    if _gaps(raw, before) != _gaps(became, after):
        names = [one.name for one in before], [one.name for one in after]
        return Violation("message", f"a block's {names[0]} became {names[1]}")
    kind = next((one.value for one in before if one.name == "type"), None)
    edits: list[str] = []
    for was, now in zip(before, after, strict=True):
        if raw[was.start : was.end] == became[now.start : now.end]:
            continue
        takes = "text" if kind in _TEXTS else {"tool_result": "content"}.get(str(kind))
        if was.name != takes:
            return Violation("message", f"{was.name} of a {kind} block was changed")
        found = _compare_text(was.value, now.value, may_change_form=kind == "tool_result")
        if isinstance(found, Violation):
            return found
        edits += found
    return tuple(edits)


def _compare_content(raw: str, became: str) -> tuple[str, ...] | Violation:
    """The edits that make one content of Gemini's of another; or why none that are allowed do."""
    one, two = json.loads(raw), json.loads(became)
    if one.get("role") != two.get("role"):
        return Violation("role", f"the role {one.get('role')!r} became {two.get('role')!r}")
    if role_of(one) == "assistant":
        return _compare_model_content(one, two)
    before, after = split_object(raw), split_object(became)
    if _gaps(raw, before) != _gaps(became, after):
        return Violation("message", f"{[*one]} became {[*two]}, or its blanks differ")
    for was, now in zip(before, after, strict=True):
        texts = raw[was.start : was.end], became[now.start : now.end]
        if was.name != "parts" and texts[0] != texts[1]:
            return Violation("message", f"{was.name}: {_differ(*map(str.encode, texts))}")
    parts = next(
        (pair for pair in zip(before, after, strict=True) if pair[0].name == "parts"), None
    )
    if parts is None:
        return Violation("message", "a content without parts was changed")
    listed = [raw[parts[0].start : parts[0].end], became[parts[1].start : parts[1].end]]
    return _compare_parts(*listed)


def _compare_model_content(one: Json, two: Json) -> tuple[str, ...] | Violation:
    """Whether an answer became a stub: one text, and its calls with all but their arguments."""
    calls = [
        {**part, "functionCall": {**part["functionCall"], "args": {}}}
        for part in map(_plain_part, one["parts"])
        if "functionCall" in part
    ]
    text, *kept = map(_plain_part, two["parts"])
    if {*two} != {"role", "parts"} or {*text} != {"text"} or kept != calls:
        return Violation("message", f"an answer became {two!r:.300}")
    words = "".join(str(part["text"]) for part in one["parts"] if "text" in part)
    words += "".join(json.dumps(part["functionCall"]["args"]) for part in map(_plain_part, one["parts"]) if "functionCall" in part)  # fmt: skip
    return _compare_text(words, text["text"], may_change_form=False)


def _compare_parts(raw: str, became: str) -> tuple[str, ...] | Violation:
    """The edits that make one list of a user's parts of another.

    Of texts that are cut the first is what remains, and the others are gone; a result is cut by
    itself. All other parts stay, byte for byte, but media go where a message is masked.
    """
    before, after = split_list(raw, 0), split_list(became, 0)
    edits: list[str] = []
    words = "".join(str(one.value["text"]) for one in before if "text" in one.value)
    at, is_cut = 0, False
    for now in after:
        text = became[now.start : now.end]
        while is_cut and at < len(before) and raw[before[at].start : before[at].end] != text:
            if "text" not in before[at].value:
                break
            at += 1
        if at == len(before):
            return Violation("message", f"a part that the client's has not: {text!r:.200}")
        was = before[at]
        at += 1
        if is_cut and "text" in now.value:
            return Violation("clip", f"a text stands beside one that was cut: {text!r:.200}")
        if raw[was.start : was.end] == text:
            continue
        one, two = _plain_part(was.value), _plain_part(now.value)
        if "functionResponse" in one:
            found = _compare_response(one, two)
        elif "text" in one and not is_cut and _is_cut_text(was.value, now.value):
            is_cut = True
            found = _compare_text(words, two["text"], may_change_form=False)
        else:
            found = Violation("message", f"{one!r:.200} became {two!r:.200}")
        if isinstance(found, Violation):
            return found
        edits += found
    left = [one.value for one in before[at:] if not (is_cut and "text" in one.value)]
    if left:
        return Violation("message", f"parts are missing: {left!r:.200}")
    if len(before) == len(after) and _gaps(raw, before) != _gaps(became, after):
        return Violation("separators", "between parts")
    return tuple(edits)


def _is_cut_text(was: Json, now: Json) -> bool:
    """Whether a part is another text; what stands beside it stays, or all of it goes."""
    text = {"text": now.get("text")}
    return now in (text, {**was, **text})


def _compare_response(one: Json, two: Json) -> tuple[str, ...] | Violation:
    """The edits that make one function's response of another: only what it says is cut."""
    was, now = one["functionResponse"], two.get("functionResponse", {})
    rest = [
        {name: value for name, value in each.items() if name not in ("response", "parts")}
        for each in (was, now)
    ]
    beside = [{**each, "functionResponse": None} for each in (one, two)]
    media = now.get("parts", was.get("parts")) != was.get("parts")
    if rest[0] != rest[1] or beside[0] != beside[1] or media:
        return Violation("message", f"a result became another's: {was!r:.200}, {now!r:.200}")
    before, after = was["response"], now["response"]
    name = next(iter(before)) if len(before) == 1 else "output"
    if {*after} != {name}:
        return Violation("message", f"a result of {[*before]} became one of {[*after]}")
    words = next(iter(before.values())) if {*before} <= {"output", "result", "error"} else None
    if not isinstance(words, str):
        words = json.dumps(before, ensure_ascii=False, separators=(",", ":"))
    found = _compare_text(words, after[name], may_change_form=False)
    if "parts" in was and "parts" not in now and found == ("clip",):
        return Violation("message", "a result that was only cut lost its media")
    return found


_OWN = ("args", "response")


def _plain_part(value: Any) -> Any:
    """A part, its fields named in one way and without nulls: inside of it bytes may differ."""
    if isinstance(value, list):
        return [_plain_part(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found: Json = {}
    for name, inner in cast("Json", value).items():
        usual = re.sub(r"(?<=[a-z])_([a-z])", lambda one: one[1].upper(), name)
        if inner is not None:
            found[usual] = inner if usual in _OWN else _plain_part(inner)
    return found


def _compare_text(before: Any, after: Any, *, may_change_form: bool) -> tuple[str] | Violation:
    """Whether a text is a clip of another or a stub for it: shorter, noted, and not a new word."""
    if not may_change_form and not (isinstance(before, str) and isinstance(after, str)):
        return Violation("message", f"content: {before!r:.100} became {after!r:.100}")
    was, now = _words_of(before), _words_of(after)
    notices = [line for line in now.split("\n") if line.startswith("[")]
    others = [line for line in now.split("\n") if not line.startswith("[")]
    if not notices or HANDOFF.match(now):
        return Violation(
            "clip", f"no notice says that it was cut: {was!r:.120} became {now!r:.120}"
        )
    if len(now.encode()) >= len(was.encode()):
        return Violation("clip", f"{len(was)} characters became {len(now)}")
    strange = [one for one in others if one.strip() not in was and not one.startswith(_COUNTED)]
    if strange or not canaries_in(now) <= canaries_in(was):
        return Violation("clip", f"words that the client did not say: {strange or notices!r:.300}")
    return ("mask" if any("masked" in line for line in notices) else "clip",)


def _words_of(content: Any) -> str:
    """The words of a text, or of a list of blocks."""
    if isinstance(content, str):
        return content
    names = ("text", "stdout")
    return "\n".join(str(one[name]) for one in _blocks_of(content) for name in names if name in one)


def _texts_of(message: Json) -> list[str]:
    """The texts of a message, block by block."""
    content = message.get("parts" if "parts" in message else "content")
    listed = cast("list[Any]", content) if isinstance(content, list) else [content]
    return [_words_of(one if isinstance(one, str) else [one]) for one in listed]


def _text_of(message: Any) -> str:
    """The text that a message begins with."""
    return (_texts_of(cast("Json", message)) or [""])[0] if isinstance(message, dict) else ""


def _mark_of_handoff(message: Json) -> Any:
    """The cache mark of a handoff, if it has one."""
    return next(iter([*_marks_in(message)][::-1]), None)


def _marks_in(value: Any) -> Iterator[Any]:
    """The cache marks inside a value, in order."""
    if isinstance(value, dict):
        for name, inner in cast("Json", value).items():
            if name == "cache_control":
                yield inner
            else:
                yield from _marks_in(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _marks_in(inner)


def _check_faults(dialect: DialectName, asked: Json, sent: Json, verdict: Verdict) -> None:
    """A body that was edited has no fault that the client's own has not."""
    own = Counter(one.split(":")[0] for one in faults_of(dialect, asked))
    found = faults_of(dialect, sent)
    for rule, count in Counter(one.split(":")[0] for one in found).items():
        if count > own[rule] and rule not in FORGIVEN:
            said = [one for one in found if one.startswith(rule)]
            verdict.add("valid", f"{said!r:.300}; the client's own has {own[rule]} of these")
    adapters = jury.SDK[dialect]
    asked, sent = (_for_judges(dialect, body) for body in (asked, sent))
    bodies = [{name: body[name] for name in adapters if name in body} for body in (asked, sent)]
    found = jury.mistyped(bodies[1], adapters)
    if found and not jury.mistyped(bodies[0], adapters):
        verdict.add("types", f"{found!r:.300}; the SDK's types take the client's own")


def _is_in_a_loop(body: Json) -> bool:
    """Whether results come in for an answer that is still there."""
    listed = cast("list[Json]", body.get("messages") or [])
    last = [one for one in listed if one.get("role") == "assistant"]
    return bool(last) and any(
        one.get("type") == "tool_use" for one in _blocks_of(last[-1].get("content"))
    )


def _thinks_in_a_loop(body: Json) -> bool:
    """Whether results come in for an answer that has thoughts: a provider wants to see those."""
    if "thinking" not in body:
        return False
    said = [
        (str(one.get("role")), _blocks_of(one.get("content")))
        for one in cast("list[Json]", body["messages"])
        if one.get("role") not in _INSTRUCTIONS
    ]
    answers = [at for at, (role, _) in enumerate(said) if role == "assistant"]
    if not answers:
        return False
    kinds = [one.get("type") for one in said[answers[-1]][1]]
    after = {one.get("type") for _, blocks in said[answers[-1] + 1 :] for one in blocks}
    return "tool_result" in after and kinds[:1] != [] and kinds[0] in _THOUGHTS


def _begins_thoughtless(body: Json) -> bool:
    """Whether the tool loop under way begins with an answer without thoughts: no budget is taken then."""
    said = [
        (str(one.get("role")), [block.get("type") for block in _blocks_of(one.get("content"))])
        for one in cast("list[Json]", body["messages"])
        if one.get("role") not in _INSTRUCTIONS
    ]
    begun: list[Any] = []
    for (role, kinds), (_, behind) in reversed([*pairwise(said)]):
        if role == "assistant":
            if "tool_result" not in behind:
                break
            begun = kinds
    return bool(begun) and begun[0] not in _THOUGHTS


def faults_of(dialect: DialectName, body: Json) -> list[str]:
    """What a strict provider refuses in a body."""
    return get_dialect(dialect).list_faults(_for_judges(dialect, body))


def _for_judges(dialect: DialectName, body: Json) -> Json:
    """A body as its SDK takes it: Gemini's has the instructions and tools in a config."""
    if dialect != GEMINI:
        return body
    names = {"system_instruction": "systemInstruction", "systemInstruction": "systemInstruction"}
    names |= {"tools": "tools"}
    config = {names[name]: value for name, value in body.items() if name in names}
    return {"model": GEMINI_MODEL, "config": config, "contents": body.get("contents")}


def _blocks_of(content: Any) -> list[Json]:
    """The blocks of a content that is a list."""
    listed = cast("list[Any]", content) if isinstance(content, list) else []
    return [cast("Json", one) for one in listed if isinstance(one, dict)]


def _differ(one: bytes, two: bytes) -> str:
    """Where two texts part."""
    pairs = enumerate(zip(one, two, strict=False))
    at = next((place for place, (a, b) in pairs if a != b), min(len(one), len(two)))
    lo = max(at - 40, 0)
    return f"at {at}: {one[lo : at + 80]!r} became {two[lo : at + 80]!r}"


def _where(text: str, found: Sequence[Canary]) -> str:
    """Canaries, the first of them with the words around it."""
    word = "CANARY_{}_{}_{}_".format(*found[0])
    at = text.find(word)
    return f"{[*found[:4]]} in {text[max(at - 120, 0) : at + 40]!r}"
