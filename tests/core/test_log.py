"""Events: what is written is what is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core import log
from foldline.core.log import Event, Opened, Setting, UserSaid
from foldline.core.parts import Proxied
from foldline.errors import FormatError

# Text that can be written down at all: halves of surrogate pairs are mended where they come in.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
st.register_type_strategy(str, texts)
st.register_type_strategy(int, st.integers(0, 2**53))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
settings = st.dictionaries(texts, st.from_type(Setting), max_size=3)
st.register_type_strategy(Opened, st.builds(Opened, texts, settings, texts))
# Hypothesis takes the default of a dictionary from the signature, where it is no dictionary.
patches = st.dictionaries(texts, st.integers(0, 9), max_size=3)
st.register_type_strategy(
    Proxied, st.builds(Proxied, texts, texts, st.integers(0, 9), texts, texts, texts, patches)
)


@given(st.from_type(Event))
def test_every_event_round_trips_exactly(event):
    """Law 5 rests on this: bytes → event → the same bytes."""
    body = log.encode_event(event)
    assert log.decode_event(body) == event
    assert log.encode_event(log.decode_event(body)) == body


def test_every_kind_is_in_the_union():
    kinds = {log.event_kind_of(cls) for cls in Event.__args__}
    assert len(kinds) == len(Event.__args__) == 23


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"kind":"never_heard_of"}', b'{"kind":"user_said"}', b"[" * 10_000]
)
def test_bytes_that_are_no_event_are_a_typed_error(body):
    with pytest.raises(FormatError):
        log.decode_event(body)


def test_a_later_format_is_refused_by_name():
    body = log.encode_event(Opened("m", format=log.FORMAT + 1))
    with pytest.raises(FormatError, match="upgrade foldline"):
        log.decode_event(body)


def test_a_field_of_a_later_release_is_read_past():
    assert log.decode_event(b'{"kind":"user_said","parts":[],"mood":"new"}') == UserSaid(())
