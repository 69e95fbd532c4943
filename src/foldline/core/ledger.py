"""Facts kept without a model: what was called and how it ended, and what the model said of it.

Knows how to say one event in one line. Refuses to know how many lines there is room for.
"""

import re
from collections.abc import Iterable

from foldline.core.item import Item
from foldline.core.log import Call, Fact, calls_of, text_of

_WIDTH = 110
_FAULT = re.compile(r"error|exception|failed|failure|traceback|not found|denied", re.IGNORECASE)


def facts(items: Iterable[Item]) -> list[Fact]:
    """One line for each call with its outcome, and for the first sentence of each answer."""
    found: list[Fact] = []
    calls: dict[str, tuple[int, Call]] = {}
    for item in items:
        match item.role:
            case "model":
                if words := _sentence(text_of(item.parts)):
                    found.append(Fact(item.seq, f"said: {words}"))
                calls.update((call.id, (item.seq, call)) for call in calls_of(item.parts))
            case "result" if item.call_id in calls:
                _, call = calls.pop(item.call_id)
                found.append(Fact(item.seq, f"{_short(call)} → {_outcome(item)}"))
            case _:
                pass
    return found


def _short(call: Call) -> str:
    return _line(f"{call.name} {call.arguments}")


def _outcome(item: Item) -> str:
    if item.state == "interrupted":
        return "interrupted, outcome unknown"
    faults = (line for line in text_of(item.parts).splitlines() if _FAULT.search(line))
    fault = next(faults, "")
    if item.ok and not fault:
        return "ok"
    return f"{'ok' if item.ok else 'error'}: {_line(fault)}" if fault else "error"


def _sentence(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    return _line(re.split(r"(?<=[.!?])\s", line.strip(), maxsplit=1)[0])


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _WIDTH else flat[: _WIDTH - 1] + "…"
