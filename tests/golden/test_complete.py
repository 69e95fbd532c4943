"""Every encoder that there is has a golden log, also one that nobody has told these tests of."""

import pkgutil
from importlib import import_module
from pathlib import Path

from foldline import dialects
from foldline.core import log
from foldline.core.log import Asked, Opened
from foldline.dialects.base import DIALECTS, resolve_named_dialect

HERE = Path(__file__).parent


def encoders(package) -> dict[str, int]:
    """The newest encoder of every dialect that a room of wires writes."""
    rooms = [
        import_module(f"{package.__name__}.{one.name}")
        for one in pkgutil.iter_modules(package.__path__)
    ]
    return {room.DIALECT: room.ENCODER for room in rooms if hasattr(room, "ENCODER")}


def pinned(folder: Path) -> set[tuple[int, str, int]]:
    """Format, dialect and encoder of every request in the golden logs."""
    found = set()
    for path in folder.glob("*.jsonl"):
        events = [log.decode_event(line) for line in path.read_bytes().splitlines()]
        assert isinstance(events[0], Opened)
        asked = [event for event in events if isinstance(event, Asked)]
        found |= {(events[0].format, event.dialect, event.encoder) for event in asked}
    return found


def lacking(found: dict[str, int], folder: Path) -> list[str]:
    """The dialects whose newest encoder has no golden log of today's format."""
    have = pinned(folder)
    return [name for name, encoder in found.items() if (log.FORMAT, name, encoder) not in have]


def test_every_encoder_has_a_golden_log():
    """Whoever raises an ENCODER, adds a dialect, or raises FORMAT writes a log: make.py."""
    found = encoders(dialects)
    assert {*found} == {*DIALECTS}, "they are found by themselves"
    assert lacking(found, HERE) == []
    for name, encoder in found.items():
        assert resolve_named_dialect(name).encoder == encoder, "what is found is what is spoken"


def test_it_notices(monkeypatch, tmp_path):
    found = encoders(dialects)
    assert lacking({**found, "bedrock": 1}, HERE) == ["bedrock"]
    assert lacking({**found, "anthropic": found["anthropic"] + 1}, HERE) == ["anthropic"]
    assert lacking(found, tmp_path) == [*found]
    monkeypatch.setattr(log, "FORMAT", log.FORMAT + 1)
    assert lacking(found, HERE) == [*found]


def test_every_older_encoder_is_still_there():
    """Their logs are kept for good: each number up to the newest has one."""
    have = pinned(HERE)
    for name, newest in encoders(dialects).items():
        numbers = {encoder for _, dialect, encoder in have if dialect == name}
        assert numbers == {*range(1, newest + 1)}, name
