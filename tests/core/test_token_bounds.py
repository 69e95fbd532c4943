"""Bounds beside real tokenizers, what is in doubt, and what reports make certain: T-1, T-2."""

import random
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_texts import ODD, SAMPLES

import foldline
from foldline.core import token_bounds
from foldline.core.budget import estimate_request, limits, measure_budget
from foldline.core.log import Asked, Masked, UsageReported
from foldline.core.plan import Facts, Ready
from foldline.core.policy import CONFIRM, STEADY
from foldline.core.token_bounds import bound_tokens, count_cautiously, count_plain_tokens
from foldline.core.tokens import count_tokens
from foldline.core.view import load
from foldline.testing import Planned, calls, model, result, user

R = random.Random(7)
DUMPS = {
    "hexdump": "\n".join(
        f"{n * 16:08x}  " + " ".join(f"{R.randrange(256):02x}" for _ in range(16))
        for n in range(400)
    ),
    "digits": "\n".join(" ".join(str(R.randrange(10)) for _ in range(40)) for _ in range(200)),
    "genes": "\n".join("".join(R.choice("acgt") for _ in range(60)) for _ in range(150)),
    "pods": "\n".join("".join(R.choices("bcdfghjklmnpqrstvwxz", k=5)) for _ in range(1_500)),
    "viet": unicodedata.normalize("NFD", "Tôi muốn đặt một bàn cho hai người vào tối nay. ") * 60,
    "sounds": "ðə ˈkwɪk braʊn fɒks ˈdʒʌmps ˈəʊvə ðə ˈleɪzi dɒɡ, ænd ɪt rʌnz əˈweɪ. " * 60,
    "lao": "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ ສິດທິ ເສລີພາບ ແລະ ຄວາມສະເໝີພາບ " * 60,
    "xhosa": "Abantwana besikolo bafunda ukubhala nokufunda ngolwimi lwabo lweenkobe. " * 60,
    "short words": "the cat sat on the mat and saw it all again " * 100,
}
TEXTS = {**SAMPLES, **ODD, **DUMPS}
PROSE = "Most of the tests pass when the file is read in one piece, and nobody complained. "


@pytest.fixture
def encodings(shared, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(shared / "data" / "tiktoken"))
    tiktoken = pytest.importorskip("tiktoken")
    return [tiktoken.get_encoding(name) for name in ("o200k_base", "cl100k_base")]


def count_true(encodings, text):
    return max(len(one.encode_ordinary(text)) for one in encodings)


def check_bounds(encodings):
    for name, text in TEXTS.items():
        assert bound_tokens(text) >= 0.95 * count_true(encodings, text), name


def test_no_text_has_more_tokens_than_its_bound(encodings):
    check_bounds(encodings)


@pytest.mark.parametrize(
    ("name", "key", "lower"),
    [
        ("_ASCII", b"0", 400),
        ("_ASCII", b".", 600),
        ("_PAIRS", b" a", 100),
        ("_SCRIPTS", b"m", 500),
        ("_SCRIPTS", b"t", 900),
        ("_UNKNOWN", None, 100),
        ("_HARSH", None, 100),
    ],
)
def test_the_check_catches(encodings, monkeypatch, name, key, lower):
    """A weight that is too low."""
    if key is None:
        monkeypatch.setattr(token_bounds, name, lower)
    else:
        monkeypatch.setitem(getattr(token_bounds, name), key, lower)
    token_bounds._size_piece.cache_clear()
    try:
        with pytest.raises(AssertionError):
            check_bounds(encodings)
    finally:
        token_bounds._size_piece.cache_clear()


@given(st.text(), st.sampled_from((1, 3, 700)))
def test_a_bound_is_between_nothing_and_the_bytes(text, times):
    size = len((text * times).encode("utf-8", "surrogatepass"))
    assert bool(size) <= bound_tokens(text * times) <= size
    assert 0 <= count_plain_tokens(text * times) <= count_cautiously(text * times)
    assert count_tokens(text * times) <= count_cautiously(text * times)


def test_what_is_plain():
    for name in ("en", "code"):
        assert count_plain_tokens(TEXTS[name]) == count_cautiously(TEXTS[name])
    for name in ("base64", "hex", "zh", "ru", "digits", "hexdump", "xhosa", "genes"):
        assert count_plain_tokens(TEXTS[name]) == 0, name


def report_honestly(talk, text=PROSE * 5, turns=1, ratio=1.0):
    for _ in range(turns):
        talk.append(user(text), model("ok"))
        size = estimate_request(talk.view)
        talk.append(
            Asked(talk.view.head, "", "", 0, estimate=size), UsageReported(input=int(ratio * size))
        )


def measure(talk):
    return measure_budget(talk.view, talk.facts.limits)


def test_only_what_no_provider_has_counted_is_in_doubt():
    talk = Planned(Facts(limits(32_768, None), STEADY))
    talk.append(user(DUMPS["hexdump"]))
    assert measure(talk).doubt > 0.5 * count_tokens(DUMPS["hexdump"])
    report_honestly(talk)
    assert measure(talk).doubt == 0
    talk.append(user(DUMPS["lao"]))
    lao = count_cautiously(DUMPS["lao"]) - count_tokens(DUMPS["lao"])
    assert measure(talk).doubt == pytest.approx(lao, rel=0.1)


def test_three_reports_make_plain_text_more_certain():
    doubts = []
    for turns in range(5):
        talk = Planned(Facts(limits(32_768, None), STEADY))
        report_honestly(talk, PROSE * 40, turns=turns, ratio=0.75)
        talk.append(user(TEXTS["short words"]))
        doubts.append(measure(talk).doubt)
    assert doubts[1] > doubts[2] > doubts[3] == doubts[4]


def test_a_model_that_counts_more_strains_the_bounds():
    """A report far above the estimate: what comes next may be as far above its bound."""
    talk = Planned(Facts(limits(32_768, None), STEADY))
    talk.append(user(PROSE * 80), model("ok"))
    size = estimate_request(talk.view)
    talk.append(Asked(talk.view.head, "", "", 0, estimate=size), UsageReported(input=2 * size))
    talk.append(user(DUMPS["digits"]))
    tokens = measure(talk).used - 2 * size + measure(talk).doubt
    assert tokens == pytest.approx(2 * count_cautiously(DUMPS["digits"]), rel=0.05)


def test_after_an_edit_everything_is_in_doubt_again():
    talk = Planned(Facts(limits(32_768, None), STEADY), user("look"), calls("c"))
    talk.append(result("c", DUMPS["hexdump"][:4_000]), model("ok"))
    report_honestly(talk)
    assert measure(talk).doubt == 0
    masked = replace_nothing(talk)
    assert measure(masked).doubt > 0


def replace_nothing(talk):
    """Mask a result, which is an edit."""
    from foldline.core.edits.mask import list_results, mask_results  # noqa: PLC0415

    masked = mask_results(talk.view, list_results(talk.view, turn_only=False))
    assert isinstance(masked, Masked)
    talk.append(masked)
    return talk


@pytest.mark.parametrize("policy", [STEADY, CONFIRM])
def test_doubt_alone_folds_nothing_without_consent(policy):
    """`confirm`: nothing is folded without a yes while the request can be sent."""
    talk = Planned(Facts(limits(8_192, None), policy))
    for n in range(12):
        talk.append(user(f"{n}: {DUMPS['lao'][:500]}"), model("ok"))
    talk.append(user("and now?"))
    budget = measure(talk)
    assert budget.used < 0.7 * budget.room
    assert not budget.fits
    made = talk.plan()
    assert isinstance(made, Ready)
    assert (made.folded is not None) == (policy is STEADY)
    if made.folded:
        talk.ask(made)
        assert measure(talk).fits


def test_doubt_never_overflows():
    """What cannot be folded is sent if its estimate fits: the provider may know better."""
    talk = Planned(Facts(replace(limits(2_048, None), reserve=100), STEADY))
    talk.append(user(DUMPS["lao"][:1_400]))
    assert not measure(talk).fits
    assert isinstance(talk.plan(), Ready)


@pytest.mark.parametrize("name", DUMPS)
@pytest.mark.parametrize("window", [2_048, 8_192])
def test_a_first_request_fits(encodings, name, window):
    """T-1: a message larger than the window, by o200k and cl100k."""
    text = DUMPS[name] * (1 + 6 * window // len(DUMPS[name]))
    with foldline.open(":memory:", model="gpt-4o", window=window, reserve=64) as s:
        s.add(text)
        (sent,) = s.request()["messages"]
    assert count_true(encodings, sent["content"]) + 8 <= window
    assert count_true(encodings, sent["content"]) >= 0.2 * window, "and is not empty for it"


@given(
    st.lists(st.tuples(st.sampled_from("umra"), st.sampled_from([*DUMPS])), max_size=25),
    st.sets(st.integers(0, 24)),
)
def test_sums_are_those_of_the_items_whatever_was_asked_before(steps, asked):
    """Sums are kept from one question to the next; a view that was never asked has the same."""
    talk = Planned(Facts(limits(32_768, None), STEADY), user("begin"))
    for number, (kind, name) in enumerate(steps):
        text = DUMPS[name][:200]
        match kind:
            case "u":
                talk.append(user(text))
            case "m":
                talk.append(model(text))
            case "r":
                talk.append(calls(f"c{number}"), user("meanwhile"), result(f"c{number}", text))
            case _:
                report_honestly(talk, text)
        if number in asked:
            measure(talk)
    shown = (*talk.view.items, *talk.view.waiting)
    bounds = talk.view.bound_items(-1, count_cautiously)
    assert bounds.tokens == sum(item.tokens for item in shown)
    assert bounds.most == sum(map(talk.view.bound_item, shown))
    fresh = load(talk.view.spine, talk.view.held, head=talk.view.head)
    assert measure_budget(fresh, talk.facts.limits) == measure(talk)


PRIVATE = "".join(map(chr, range(0xE000, 0xE800)))


def check_private_use_letters(encodings):
    """Letters that no standard names: up to three tokens each."""
    assert bound_tokens(PRIVATE) >= count_true(encodings, PRIVATE)
    assert count_cautiously(PRIVATE) >= 0.9 * count_true(encodings, PRIVATE) - 1


def test_private_use_letters_are_not_bounded_too_low(encodings, monkeypatch):
    check_private_use_letters(encodings)
    monkeypatch.setitem(token_bounds._SCRIPTS, b"f", 2_700)
    token_bounds._size_piece.cache_clear()
    try:
        with pytest.raises(AssertionError):
            check_private_use_letters(encodings)
    finally:
        token_bounds._size_piece.cache_clear()
