"""What was cut comes back byte for byte; a handle that lies, or a recall that does, is caught."""

from functools import cache

import msgspec
import pytest
from made.generated import generate_coding_session
from mutants import broken
from probes.recoverable import measure_recovery

from foldline.core.budget import limits
from foldline.core.log import Folded, Masked, ToolReturned
from foldline.core.parts import Stub, Text
from foldline.core.plan import Facts
from foldline.core.policy import CLASSIC, CONFIRM, PRESETS, THREE_LAYER, THRIFTY
from foldline.core.prices import Prices
from foldline.lab.policy_run import Ours
from foldline.lab.replay import replay_session

PRICES = Prices(1.0, 0.10, 1.25, 5.0)


@cache
def session():
    return generate_coding_session(4, calls=80, tokens=60_000).recorded


@cache
def log(name, window=30_000):
    ours = Ours(session(), Facts(limits(window, None), PRESETS[name], PRICES))
    replay_session(session(), ours)
    return tuple(ours.events)


@pytest.mark.parametrize("name", sorted({*PRESETS} - {"off"}))
def test_every_byte_comes_back(name):
    made = measure_recovery(log(name), session())
    assert made.edits
    assert made.removed > 50_000
    assert made.recovered == made.removed


def changed(kind, how, policy=THRIFTY):
    events = [how(event) if isinstance(event, kind) else event for event in log(policy.name)]
    return measure_recovery(events, session())


def test_a_fold_that_names_another_span_is_caught():
    def wrong(fold):
        lo = fold.change.span.lo
        return msgspec.structs.replace(
            fold, text=fold.text.replace(f"log:{lo}-", f"log:{lo + 3}-", 1)
        )

    assert changed(Folded, wrong).percent < 100
    assert changed(Folded, wrong, CONFIRM).percent < 100


def test_a_fold_without_a_handle_is_caught():
    made = changed(Folded, lambda fold: msgspec.structs.replace(fold, text="Much was done."))
    assert made.percent < 60


def test_a_stub_that_names_another_event_is_caught():
    def wrong(mask):
        stubs = tuple(
            Stub(one.seq, one.text.replace(f"log:{one.seq}", f"log:{one.seq - 1}"))
            for one in mask.stubs
        )
        return msgspec.structs.replace(mask, stubs=stubs)

    assert changed(Masked, wrong, THREE_LAYER).percent < 100


def test_an_original_that_was_not_kept_whole_is_caught():
    def cut(event):
        return msgspec.structs.replace(event, parts=event.clip.parts) if event.clip else event

    def one_byte(event):
        return msgspec.structs.replace(event, parts=(Text(event.parts[0].text + " "),))

    assert changed(ToolReturned, cut, CLASSIC).percent < 100
    assert changed(ToolReturned, one_byte).percent < 50


@pytest.mark.parametrize(
    ("module", "line", "instead"),
    [
        ("foldline.core.recall.query", "lines.append(text)", "lines.append(text.strip())"),
        ("foldline.core.item", "        seq, outcome=outcome,", "        seq + 1, outcome=outcome,"),
    ],
)  # fmt: skip
def test_a_recall_that_lies_is_caught(module, line, instead):
    events = log("classic")
    with broken(module, line, instead):
        assert measure_recovery(events, session()).percent < 100
