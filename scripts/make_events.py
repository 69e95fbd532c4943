"""The page docs/reference/events.md: the kinds of events, their fields, and a line of each.

Knows a short conversation in which every kind happens. Its events are made by the core, written by
the encoder, and read back: a line that does not come back as it was is an error.
"""

from collections.abc import Iterator

import from_source as source
import msgspec
from from_source import cell, code, table

from foldline.core import log, parts, rules, spine
from foldline.core.budget import limits
from foldline.core.edits.clip import clip_newest_messages
from foldline.core.edits.undo import rewind_view
from foldline.core.log import (
    Checkpointed,
    Event,
    Instructed,
    Interrupted,
    Linked,
    ModelSaid,
    ModelSwitched,
    Pinned,
    Repaired,
    ServerTruncated,
    SettingsChanged,
    ToolReturned,
    Unpinned,
    UsageReported,
    WindowLearned,
)
from foldline.core.parts import Call, Text, Tool
from foldline.core.spine import Range
from foldline.testing import Conversation, user

WORDS = """A session is a list of these, in one order; an event is named by its place. They are
written as JSON, one object each, `kind` first; a field that has its default is left out. `foldline
export NAME` gives them, one a line, and `foldline import` takes such a file back.

The format is for keeps: fields may be added with a default that means "as before"; none is
renamed, removed, or given another default. JSON that others wrote (arguments, schemas, messages of
a provider) is kept as text, so that its bytes come back. Time is not in an event: a store keeps it
beside, for people."""
GROUPS = (
    ("What the session is", "opened settings_changed instructed model_switched"),
    (
        "What was said and done",
        "user_said model_said tool_returned interrupted linked checkpointed",
    ),
    ("What was sent and counted", "asked usage_reported window_learned server_truncated repaired"),
    (
        "Edits: each holds its text and the spine after it",
        "masked folded excluded clipped undone rewound",
    ),
    ("What is kept through folds", "pinned unpinned"),
)
COMMON = {
    "parts": "What was said or shown, [part by part](#parts).",
    "native": "The provider's own JSON, where the neutral form would not give it back.",
    "clip": "What is shown instead of all of it, where it was too large when it came.",
    "change": "What the edit did to the spine; its inverse is the undo.",
    "spine": "Which events the view is made of from here on.",
    "stubs": "The texts that stand in place of events.",
    "call_id": "The call's id, as the model is shown it.",
    "model": "The model's name.",
}
"""What fields of these names mean, wherever they are."""
SPELLED = ("Speaker", "Stop")
"""Types that are shown by what they may be."""
PARTS = (parts.Text, parts.Gap, parts.Media, parts.Thought, parts.Call)
VALUES = (
    *(parts.Native, parts.Clip, parts.Tool, parts.Echo, parts.Proxied),
    *(parts.Fact, parts.Stub, parts.Line),
)
SPINES = (spine.Spine, spine.Change)


def page() -> str:
    """The whole page."""
    lines = {log.event_kind_of(event): event for event in reversed(conversation())}
    kinds = {log.event_kind_of(one): one for one in Event.__args__}
    told = [kind for _, names in GROUPS for kind in names.split()]
    if {*told} != {*kinds} or {*lines} != {*kinds}:
        raise ValueError(
            f"kinds without a place or a line: {({*kinds} - {*told}) | ({*kinds} - {*lines})}"
        )
    made = [
        "# Events",
        "<!-- made by scripts/make_reference.py from src/foldline/core/log.py: change that -->",
        WORDS,
    ]
    for title, names in GROUPS:
        made.append(f"## {title}")
        for kind in names.split():
            made += [f"### `{kind}`", *_told(kinds[kind]), f"```json\n{_line(lines[kind])}\n```"]
    made += ["## Parts", source.told(parts._Part), *_values(PARTS)]  # noqa: SLF001
    made += ["## Values", "What events hold besides.", *_values(VALUES)]
    made += ["## The spine", source.told(spine), *_values(SPINES)]
    return "\n\n".join(made) + "\n"


def conversation() -> list[Event]:
    """A conversation in which every kind of event happens."""
    talk = Conversation("gpt-6.1-sol")
    tool = Tool(
        "run", "Run a command.", '{"type":"object","properties":{"command":{"type":"string"}}}'
    )
    talk.add(
        SettingsChanged({"policy": "thrifty"}),
        Instructed((Text("Be brief."),), (tool,)),
        user("Make the parser tests pass.", author="Ann"),
    )
    asked = talk.ask()
    talk.add(
        ModelSaid((Call("c1", "run", '{"command":"pytest -q"}'),), saw=asked.at),
        UsageReported(asked.asked, input=812, cache_read=640, output=31),
        ToolReturned("c1", (Text("FAILED tests/test_parse.py::test_escape"),), ok=False),
        Pinned(3),
        ModelSaid((Text("I ask a second agent."), Call("c2", "run", '{"command":"agent"}'))),
        Linked("parser-fix", "c2"),
        Interrupted("c2", "the process was stopped"),
        ToolReturned("c2", (Text("done"),)),
        Repaired("result without an open call", "'c2' is shown as a notice"),
        WindowLearned("gpt-6.1-sol", 400_000, "error text"),
        ServerTruncated(9_120, 4_096),
        Checkpointed("before the rewrite", "git:4f2a91c"),
        user("And now the lexer."),
        ModelSaid((Text("The lexer passes."),)),
    )
    results = [item.seq for item in talk.view.items if item.role == "result"]
    _must(talk.mask(results[:1]))
    _must(talk.undo(len(talk.events) - 1))
    _must(talk.mask([talk.view.items[-1].seq], exclude=True))
    talk.add(user("Go on."), Unpinned(3), ModelSwitched("anthropic/claude-sonnet-5.5"))
    _must(talk.fold(rules.cut_points(talk.view)[-1]))
    talk.add(user("Look at this: " + "a line of a long file; " * 40))
    cut = clip_newest_messages(talk.view, limits(400, 100), recall=True)
    _must(cut is not None)
    talk.add(*(cut[:1] if cut else ()))
    newest = talk.view.items[-1].seq
    talk.add(rewind_view(talk.view, dropped=[Range(newest, newest)]), user("Or rather at that."))
    return talk.events


def _must(done: bool) -> None:  # noqa: FBT001 - what a step says of itself
    if not done:
        raise ValueError("a step of the example did nothing")


def _line(event: Event) -> str:
    body = log.encode_event(event)
    if log.encode_event(log.decode_event(body)) != body:
        raise ValueError(f"{body!r} does not come back as it was")
    return body.decode()


def _told(kind: type[msgspec.Struct]) -> Iterator[str]:
    yield source.told(kind)
    if rows := [(_name(one), *_rest(kind, one)) for one in source.fields(kind)]:
        yield table(("field", "type", "default", "meaning"), rows)


def _values(kinds: tuple[type[msgspec.Struct], ...]) -> Iterator[str]:
    for kind in kinds:
        yield f"### `{kind.__name__}`"
        yield source.told(kind)
        rows = [(_name(one), *_bare(one), cell(one.told)) for one in source.fields(kind)]
        yield table(("field", "type", "default", "meaning"), rows)


def _name(one: source.Field) -> str:
    return f"`{one.name}`"


def _bare(one: source.Field) -> tuple[str, str]:
    kind = source.alias(log, one.type).type if one.type in SPELLED else one.type
    return code(kind), "" if one.default is None else code(one.default)


def _rest(kind: type, one: source.Field) -> tuple[str, ...]:
    meaning = one.told or COMMON.get(one.name)
    if not meaning:
        raise ValueError(f"{kind.__name__}.{one.name} has no meaning: write it below the field")
    return (*_bare(one), cell(meaning))
