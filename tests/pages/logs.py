"""Logs for the pages: a conversation with requests, counts and a fold, and one that wants to harm."""

from foldline.core.log import (
    Asked,
    Instructed,
    ModelSaid,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Text, Tool
from foldline.session.stored_session import hold_stored_session, open_stored_session
from foldline.stores import event_log
from foldline.stores.base import Name

MODEL = "anthropic/claude-sonnet-4-5"
HOSTILE = (
    "</pre></script><script>alert(1)</script><img src=//evil.example/x onerror=alert(2)>"
    '"\' onmouseover=alert(3) x="&lt;b&gt;&#60;i&#62; javascript:alert(4) {{ 7 * 7 }} {% raw %} ]]> --> '
    "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe\u202c \u2066x\u2069 \u200b\u200e\ufeff\x00\x9b1m \u2028 e\u0301"
    + "\u0335"
    * 60
)


def asked(at, tokens=900, parameters="{}"):
    return Asked(
        at=at, dialect="anthropic", sha256="0" * 64, encoder=1, tokens=tokens, parameters=parameters
    )


def turn(at, number, *, words="Look at parser.py.", usage=True, size=400):
    """The six events of a turn that begin at a place."""
    events = [
        UserSaid((Text(f"{words} {number}"),)),
        asked(at, 1_000 * number),
        ModelSaid(
            (Text(f"I read {number}."), Call(f"c{number}", "read_file", '{"path":"src/m.py"}'))
        ),
        ToolReturned(f"c{number}", (Text("line of a file\n" * size),)),
        ModelSaid((Text(f"Done with {number}."),)),
    ]
    more = UsageReported(
        input=4_000 * number, cache_read=4_000 * (number - 1), cache_write=0, output=50
    )
    return [*events, *([more] if usage else [])]


def conversation(turns, **more):
    """A log of so many turns."""
    events = [
        Opened(MODEL, {"window": 64_000}),
        Instructed((Text("Be brief."),), (Tool("read_file", "Read.", "{}"),)),
    ]
    for number in range(1, turns + 1):
        events += turn(len(events), number, **more)
    return events


async def write(store, name, events, *, owner="", tenant="local"):
    """A session with these events."""
    if owner:
        await store.claim(Name(tenant, name), owner)
    await event_log.append_events(store, Name(tenant, name), events)


async def fold(store, name):
    """Fold a session beside the pages; the place of the edit."""
    seen = await open_stored_session(store, Name("local", name))
    async with hold_stored_session(seen):
        assert await seen.fold() is not None
    return seen.edits[-1]


def hostile_events(large=10_000_000):
    """Every text of a log is an attack; one is a line without an end."""
    said = HOSTILE
    return [
        Opened(said, {"x": said}, origin=said),
        Instructed((Text(said),), (Tool(said, said, "{}"),)),
        UserSaid((Text(said),), author=said),
        asked(2),
        ModelSaid((Text(said), Call(said, said, said))),
        ToolReturned(said, (Text(said),), ok=False),
        UsageReported(input=5_000, cache_read=100, output=5),
        UserSaid((Text(said + "<" * large),)),
        asked(7),
        ModelSaid((Text(said * 50),)),
        UsageReported(input=9_000, cache_read=0, output=5),
    ]
