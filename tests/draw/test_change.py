"""Before and after an edit on one card: what is the same in both is found, whatever the edit was."""

import unicodedata
from xml.etree import ElementTree as ET

from hypothesis import given

from foldline.core.budget import limits
from foldline.core.edits.fold import measure_loss
from foldline.core.log import Folded
from foldline.core.plan import Facts, Ready, after, plan
from foldline.core.policy import CLASSIC, STEADY
from foldline.core.prices import make_prices
from foldline.draw import build_picture
from foldline.draw.change_svg import change_svg, count_common_tokens
from foldline.testing import Conversation, calls, model, result, user
from foldline.testing.strategies import conversations


def facts(window, policy=STEADY):
    return Facts(limits(window, None), policy, make_prices(input=5.0, read=0.5, write=6.25))


def changed(view, given):
    """A view before and after what is planned for it, and what the fold takes."""
    made = plan(view, given)
    assert isinstance(made, Ready)
    fold = next((one for one in made.events if isinstance(one, Folded)), None)
    lost = (
        None
        if fold is None
        else measure_loss(after(view, made.events[: made.events.index(fold)]), fold)
    )
    return build_picture(view, given), build_picture(after(view, made.events), given), lost


def words(text):
    return " ".join(one for one in ET.fromstring(text).itertext())  # noqa: S314 - our own


def long_talk():
    talk = Conversation()
    for n in range(40):
        talk.add(
            user(f"turn {n}: look at parser_{n}.py " + "and say why " * 20),
            calls(f"c{n}"),
            result(f"c{n}", f"def parse_{n}(): ..." * 40),
            model(f"It is as I said, number {n}."),
        )
    return talk


def test_what_became_what_is_drawn_and_told():
    """The fold's own figures stand on the card, and those of the request before and after."""
    before, then, lost = changed(long_talk().view, facts(8_192))
    assert lost is not None
    assert then.total < before.total
    said = words(change_svg(before, then, lost=lost))
    for expected in (
        f"{before.total:,} tokens become {then.total:,}",
        "folded into",
        f"{lost.quoted:,} messages verbatim",
        f"{len(lost.left['results']):,} results",
        f"{lost.left['results'][0].handle} …",
    ):
        assert expected in said
    head, tail = count_common_tokens(before, then)
    assert head == 0
    # What stays is all that is behind the handoff: the two parts are the whole of it.
    handoff = sum(run.tokens for run in then.select_runs("handoffs"))
    assert abs(head + handoff + tail - then.total) <= len(then.runs)


def test_nothing_changed_is_all_the_same():
    before = build_picture(long_talk().view, facts(1_000_000))
    assert sum(count_common_tokens(before, before)) == before.total
    assert "nothing is deleted" in words(change_svg(before, before, lost=None))


@given(conversations())
def test_any_edit_is_drawn_within_the_card(talk):
    for window, policy in ((700, STEADY), (8_192, CLASSIC)):
        made = plan(talk.view, facts(window, policy))
        if not isinstance(made, Ready):
            continue
        before, then, lost = changed(talk.view, facts(window, policy))
        head, tail = count_common_tokens(before, then)
        assert 0 <= head + tail <= min(before.total, then.total)
        text = change_svg(before, then, lost=lost)
        root = ET.fromstring(text)  # noqa: S314 - our own
        wide = float(root.get("width"))
        assert not [one for one in text if one != "\n" and unicodedata.category(one)[0] == "C"]
        for one in root.iter("{http://www.w3.org/2000/svg}rect"):
            assert 0 <= float(one.get("x", 0)) + float(one.get("width")) <= wide
