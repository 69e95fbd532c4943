"""What a log's calls cost: an answer is charged once, by whoever asked for it."""

from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core.log import Asked, Folded, ModelSwitched, Opened, UsageReported
from foldline.core.parts import Proxied
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.spine import Change, Range, Spine
from foldline.session.ledger import Ledger
from foldline.session.usage_records import UsageSums
from foldline.testing import model, user

PRICES = Prices(input=3.0, read=0.3, write=3.75, output=15.0)
USED = UsageReported(input=1_000, cache_read=600, cache_write=300, output=10)
PAID = 600 * 300_000 + 300 * 3_750_000 + 100 * 3_000_000 + 10 * 15_000_000
ASKED = Asked(1, "anthropic", "", 1, tokens=900, proxied=Proxied("", ""))
STEPS = {
    "history": ([user("a"), model("b")], 0, 0),
    "counted": ([user("a"), ASKED, model("b"), USED], 1, 1),
    "uncounted": ([user("a"), ASKED, model("b")], 1, 0),
    "without words": ([user("a"), ASKED, USED], 1, 1),
    "refused": ([user("a"), ASKED], 0, 0),
    "broke off": ([user("a"), ASKED, model(""), UsageReported(input=0, output=0)], 0, 0),
    "narrative": ([Folded("t", Change(Range(0, 1), (), ()), Spine(), by="m", used=USED)], 1, 1),
}
"""What is logged, the calls of it, and how many of them are counted."""


def read(events, priced=PRICES):
    ledger, own = Ledger(lambda _: priced), UsageSums()
    for seq, event in enumerate([Opened("m"), *events]):
        charge = ledger.apply_event(seq, event)
        if charge is not None:
            charge.add_to(own)
    return ledger, own


def check(names):
    events = [event for name in names for event in STEPS[name][0]]
    ledger, own = read(events)
    total = ledger.sum_charges()
    counted = sum(STEPS[name][2] for name in names)
    assert own == total, "charges add up to the sums"
    assert (total.calls, total.pico) == (sum(STEPS[n][1] for n in names), counted * PAID)
    assert total.estimated == total.calls - counted
    assert ledger.sum_charges("narrative").pico == names.count("narrative") * PAID
    assert ledger.sum_charges("answer").pico == (counted - names.count("narrative")) * PAID
    unpriced, _ = read(events, UNKNOWN)
    assert (unpriced.sum_charges().pico, unpriced.sum_charges().unpriced) == (0, counted), (
        "unknown, and not zero"
    )
    fork, _ = read([*events, Opened("m", origin="main@4"), *STEPS["counted"][0]])
    assert (fork.sum_charges().calls, fork.sum_charges().pico) == (1, PAID), (
        "a copy is paid where it was copied from"
    )
    imported, _ = read([Opened("m", origin="import:claude-code"), user("a"), model("b")])
    assert imported.sum_charges().calls == 1


@given(st.lists(st.sampled_from([*STEPS]), max_size=12))
def test_what_was_asked_for_or_counted_is_charged_once(names):
    check(names)


def test_a_bill_that_charges_otherwise_is_noticed():
    named = [*STEPS, *STEPS]
    for line, instead in (
        ("is_call = self._asked is not None or self._is_import", "is_call = True"),
        ("is_call = self._asked is not None or self._is_import", "is_call = self._asked is not None"),
        ("case Folded(by=by, used=used) if by and used is not None:", "case Folded(by=by, used=used) if False:"),
        ("                self._sums.clear()", "                pass"),
        ("sums.estimated -= self.is_correction", "pass"),
        ("self._asked = None  # it was not answered, and the client went on", "pass"),
    ):  # fmt: skip
        caught = False
        with broken("foldline.session.ledger", line, instead):
            try:
                check([*named, "refused", "history"])
            except AssertionError:
                caught = True
        assert caught, line


def test_a_call_is_billed_at_the_model_that_was_asked():
    """However late it is counted, and whatever model the session has by then."""
    prices = {"dear": Prices(5.0, 0.5, 6.25, 25.0), "cheap": Prices(1.0, 0.1, 1.25, 5.0)}
    asked = Asked(
        at=1, dialect="openai-chat", sha256="", encoder=0, parameters="", tokens=1, estimate=1
    )
    for named in (2, None):
        log = [Opened("dear"), user("hi"), asked, model("hello"), ModelSwitched("cheap")]
        ledger = Ledger(prices.__getitem__)
        for seq, event in enumerate([*log, UsageReported(asked=named, input=1_000_000, output=0)]):
            ledger.apply_event(seq, event)
        assert ledger.sum_charges().dollars == 5.0
