"""Files that were cut, doubled, shuffled and bent: an error of ours, or a session one can send."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foldline.core import log, rules
from foldline.core.log import Instructed, ModelSaid, UserSaid
from foldline.core.request import render
from foldline.dialects import openai_chat as wire
from foldline.errors import WireError
from foldline.importers import detect, read
from foldline.testing import view_of

FILES = Path(__file__).parent / "files"
SMALL = sorted(path.name for path in FILES.iterdir())
RECORDED = ("claude", "codex", "opus45", "sonnet45", "swe", "swe run", "tau", "tau chat")
LONGEST = 40
"""Lines at a time: enough for whole groups, and quick."""
FEW = settings(max_examples=max(40, settings().max_examples // 5))

texts = st.sampled_from(("", " ", "x", "user", "assistant", "tool_use", "\ud800", "[cron]", "{}"))
leaves = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2)
)
garbage = st.sampled_from(("{", "}", "null", "[]", "{}", "\x00", "]]", '{"role":"user"}', "\u2028"))
changes = st.lists(
    st.tuples(
        st.sampled_from(("drop", "double", "cut", "swap", "garbage", "bend", "bend")),
        st.integers(0, 10_000),
        st.integers(0, 10_000),
        garbage,
        values,
    ),
    max_size=6,
)


def bent(line, at, value):
    """A record with one of its values exchanged."""
    try:
        body = json.loads(line)
    except ValueError:
        return line
    places = []
    level = [body] if isinstance(body, dict | list) else []
    while level:
        one = level.pop()
        inside = one.items() if isinstance(one, dict) else enumerate(one)
        for key, inner in inside:
            places.append((one, key))
            if isinstance(inner, dict | list):
                level.append(inner)
    if places:
        holder, key = places[at % len(places)]
        holder[key] = value
    return json.dumps(body)


def changed(lines, script):
    """The lines after some accidents."""
    lines = list(lines)
    for how, a, b, text, value in script:
        if not lines:
            break
        at, other = a % len(lines), b % len(lines)
        match how:
            case "drop":
                del lines[at]
            case "double":
                lines.insert(other, lines[at])
            case "cut":
                lines[at] = lines[at][: b % (len(lines[at]) + 1)]
            case "swap":
                lines[at], lines[other] = lines[other], lines[at]
            case "garbage":
                lines.insert(at, text)
            case "bend":
                lines[at] = bent(lines[at], b, value)
            case _:
                pass
    return "\n".join(lines)


def survives(text):
    """Nothing but an error of ours; else sessions that keep and can be sent."""
    try:
        sessions = read(text)
    except WireError as fault:
        assert fault.path.startswith(("line", "["))  # noqa: PT017
        return
    assert detect(text, "")
    for session in sessions:
        for event in session.events:
            assert log.decode_event(log.encode_event(event)) == event
        view = view_of(session.events)
        for event in rules.make_closing_events(view):
            view.append(view.head + 1, event)
        rules.check_view(view)
        request = render(view)
        messages = json.loads(wire.encode_request(request, {}))["messages"]
        if request.system or request.items:  # else nothing was said, and nothing can be sent
            assert wire.list_faults(messages) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@FEW
@given(script=changes)
@example(script=[])
def test_small_files_survive_accidents(name, script):
    """R-20, R-21: whatever happens to a file, it never breaks us."""
    text = (FILES / name).read_text()
    lines = text.splitlines()
    survives(changed(lines, script))
    if not name.endswith(".jsonl"):  # the document on one line, so that its values can be bent
        survives(changed([json.dumps(json.loads(text))], script))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_files_survive_accidents(shared, name):
    lines = recorded_lines(shared, name)

    @FEW
    @given(start=st.integers(0, max(0, len(lines) - LONGEST)), script=changes)
    def accidents(start, script):
        survives(changed(lines[start : start + LONGEST], script))

    accidents()


def recorded_lines(shared, name):
    """A recorded file as lines; a run and a chat also as a document of many lines."""
    folder = shared / "data"

    def opened(file):
        with gzip.open(folder / file, "rt") as text:
            return text.read()

    match name:
        case "claude" | "codex":
            text = opened(f"tracelab_{name}_trace.json.gz")
            records = re.split(r"^===== record \d+ =====$", text, flags=re.MULTILINE)[1:]
            return [json.dumps(json.loads(record)) for record in records]
        case "opus45" | "sonnet45":
            return opened(f"pi_session_{name}.jsonl.gz").splitlines()
        case "swe":
            return opened("swe_agent_demo_trajs.jsonl.gz").splitlines()[:4]
        case "swe run":
            run = opened("swe_agent_demo_trajs.jsonl.gz").splitlines()[0]
            return json.dumps(json.loads(run), indent=1).splitlines()
        case "tau":
            chats = json.loads(opened("tau_bench_gpt4o_airline.json.gz"))
            return [json.dumps({"traj": chat["traj"]}) for chat in chats[:4]]
        case _:
            chats = json.loads(opened("tau_bench_gpt4o_airline.json.gz"))
            return [json.dumps(message) for message in chats[0]["traj"]]


def test_a_broken_line_in_the_middle_costs_only_itself(shared):
    lines = recorded_lines(shared, "opus45")
    (whole,) = read("\n".join(lines))
    (broken,) = read("\n".join([*lines[:500], lines[500][:40], *lines[501:]]))
    assert "broken line: 1 (first: line 501)" in broken.notes
    kinds = (UserSaid, ModelSaid, Instructed)
    lost = sum(isinstance(e, kinds) for e in whole.events) - sum(
        isinstance(e, kinds) for e in broken.events
    )
    assert lost in (0, 1)
