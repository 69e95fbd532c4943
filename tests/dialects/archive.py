"""Recorded sessions, and what is asked of each: planned, encoded, judged, and sent back unchanged.

Knows where ../shared/data keeps which sessions, and turns traces into the agents' own lines. Refuses
to know how many are asked about: a test takes a few, `bench recorded` all of them.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import jury
import msgspec

from foldline.core import rules
from foldline.core.budget import limits
from foldline.core.log import Event, ModelSaid
from foldline.core.plan import Blocked, Facts, Ready
from foldline.core.policy import PRESETS, Policy
from foldline.core.request import Request, render
from foldline.dialects import openai_chat
from foldline.dialects.base import CHAT, Dialect, get_dialect, list_dialects
from foldline.dialects.client_messages import item_of
from foldline.importers import read
from foldline.testing import Planned, view_of

WINDOWS = (8_192, 32_768, 200_000)
TIMES = 6
"""How often a session is planned on its way, besides at its end."""
FILES = {
    "tau": ("tau_bench_gpt4o_airline.json.gz",),
    "swe": ("swe_agent_demo_trajs.jsonl.gz",),
    "pi": ("pi_session_opus45.jsonl.gz", "pi_session_sonnet45.jsonl.gz"),
    "claude": ("tracelab_claude_trace.json.gz",),
    "codex": ("tracelab_codex_trace.json.gz",),
}
FIXED = ("system", "tools", "output reserve", "margin")
_SEPARATOR = re.compile(r"^===== record \d+ =====$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One session; `messages` are its own bytes, where it was recorded in OpenAI's dialect."""

    source: str
    name: str
    events: tuple[Event, ...]
    messages: tuple[bytes, ...] = ()


class _Chat(msgspec.Struct):
    traj: tuple[msgspec.Raw, ...] = ()
    history: tuple[msgspec.Raw, ...] = ()


@cache
def sessions(shared: Path, source: str) -> tuple[Recorded, ...]:
    """Every session of a source."""
    found: list[Recorded] = []
    for name in FILES[source]:
        with gzip.open(shared / "data" / name, "rb") as file:
            body = file.read()
        raws: list[tuple[bytes, ...]] = []
        if source in ("tau", "swe"):
            chats = body if source == "tau" else b"[" + b",".join(body.splitlines()) + b"]"
            chosen = msgspec.json.decode(chats, type=list[_Chat])
            raws = [tuple(map(bytes, chat.traj or chat.history)) for chat in chosen]
        text = body.decode()
        if source in ("claude", "codex"):
            text = "\n".join(json.dumps(json.loads(one)) for one in _SEPARATOR.split(text)[1:])
            name = ""  # noqa: PLW2901 - lines of the agent's own, told by what they hold
        kept = read(text, name.removesuffix(".gz"))
        for place, one in enumerate(kept):
            messages = raws[place] if raws else ()
            found.append(Recorded(source, one.name, tuple(one.events), messages))
    return tuple(found)


def planned(
    session: Recorded,
    *,
    windows: Sequence[int] = WINDOWS,
    presets: Sequence[Policy] = tuple(PRESETS.values()),
) -> tuple[Counter[str], list[str]]:
    """Under budgets and presets, on its way and at its end: what was asked, and what was refused."""
    seen: Counter[str] = Counter()
    refused: list[str] = []
    for window, preset in product(windows, presets):
        where = f"{session.name}, {window}, {preset.name}"
        for made in _plans(session, Facts(limits(window, None), preset)):
            if isinstance(made, Ready):
                seen["requests"] += 1
                refused += [f"{where}: {one}" for one in jury.refused(made.request)]
                continue
            seen["blocked"] += 1
            # A preset that only counts may be blocked; another one, where what it cannot edit is
            # already too much: instructions, tools, the room for an answer.
            fixed = sum(made.parts[name] for name in FIXED)
            refused += [f"{where}: {made}"] * (preset.name != "off" and fixed <= window)
    return seen, refused


def _plans(session: Recorded, facts: Facts) -> list[Ready | Blocked]:
    talk, made = Planned(facts), list[Ready | Blocked]()
    answers = sum(isinstance(event, ModelSaid) for event in session.events)
    asked = -1
    for event in session.events[1:]:
        if isinstance(event, ModelSaid):
            asked += 1
            if asked % -(-answers // TIMES) == 0 and not talk.view.open:
                made.append(_ready(talk))
                if isinstance(made[-1], Ready):
                    talk.ask(made[-1])
        talk.add(event)
    return [*made, _ready(talk)]


def _ready(talk: Planned) -> Ready | Blocked:
    made = talk.plan()
    assert isinstance(made, Ready | Blocked), made
    return made


def changed(session: Recorded) -> tuple[Counter[str], list[str]]:
    """Each message, once read and written, says what it said, in every dialect: what was asked, what differs.

    Some old runs were recorded as no provider would take them, their results without ids.
    """
    request = _closed(session.events)
    bodies: dict[str, tuple[Dialect, tuple[bytes, ...]]] = {}
    for dialect in list_dialects():
        body = dialect.encode_request(request, {"max_tokens": 9})
        listed = msgspec.json.decode(body, type=dict[str, msgspec.Raw])[dialect.messages]
        messages = msgspec.json.decode(listed, type=list[msgspec.Raw])
        bodies[dialect.name] = dialect, tuple(_join_turns(dialect, map(bytes, messages)))
    if session.messages and not openai_chat.list_faults(
        [msgspec.json.decode(one) for one in session.messages]
    ):
        bodies["as it was recorded"] = (get_dialect(CHAT), session.messages)
    seen = Counter([*bodies, "indented"])
    return seen, [
        f"{session.name} {what}: message {place} came as {came[:200]!r}, {how}"
        for what, (dialect, messages) in bodies.items()
        for place, came in enumerate(messages)
        for how in _differences(dialect, came)
    ]


def _join_turns(dialect: Dialect, raws: Iterable[bytes]) -> Iterable[bytes]:
    """The messages of a list: where a turn is several items, these are one."""
    turn: list[bytes] = []
    for raw in raws:
        is_model = dialect.has_turns and dialect.is_model_item(raw)
        if turn and not is_model:
            yield b",".join(turn)
            turn = []
        if is_model:
            turn.append(raw)
        else:
            yield raw
    if turn:
        yield b",".join(turn)


def _differences(form: Dialect, came: bytes) -> Iterable[str]:
    """In what a message differs from what is read and written of it, or from itself, indented."""
    described = form.describe_message(came)
    items = json.loads(b"[" + came + b"]")
    indented = b",\n".join(json.dumps(item, indent=1).encode() for item in items)
    if form.describe_message(indented).digest != described.digest:
        yield "and is another when it is indented"
    if described.role == "system":
        return
    for body in (came, indented):
        events = form.read_message(body, described)
        again = form.write_message([item_of(event) for event in events])
        if form.describe_message(again).digest != described.digest:
            yield f"went back as {again[:200]!r}"


def _closed(events: Iterable[Event]) -> Request:
    """What would be sent behind some events."""
    view = view_of(events)
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    return render(view)
