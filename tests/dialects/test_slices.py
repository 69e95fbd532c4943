"""Places of values in JSON texts: found by bytes, and every other byte stays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_json import numbers, quoted, spaces, texts, written

from foldline.dialects.json_slices import (
    Slice,
    Splice,
    apply_splices,
    cut_out,
    find_fields,
    find_values,
)
from foldline.errors import WireError

values = st.recursive(
    st.one_of(numbers.map(lambda text: (text,)), texts, st.none(), st.booleans()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def inside(draw, value):
    """A value's text with other bytes around it, and where it is."""
    before, after = draw(st.sampled_from([("", ""), ("[0, ", "]"), ('{"a":', ',"b":[]}')]))
    space = draw(spaces)
    body = draw(written(value)).encode()
    head = f"{before}{space}".encode()
    return head + body + f"{space}{after}".encode(), Slice(len(head), len(head) + len(body))


@given(st.dictionaries(texts, values, max_size=5).flatmap(inside))
def test_fields_are_where_they_are(made):
    text, place = made
    found = find_fields(text, place)
    assert {name: json.loads(text[slice(*one)]) for name, one in found.items()} == json.loads(text[slice(*place)])  # fmt: skip


@given(st.lists(values, max_size=5).flatmap(inside))
def test_values_are_where_they_are(made):
    text, place = made
    found = find_values(text, place)
    assert [json.loads(text[slice(*one)]) for one in found] == json.loads(text[slice(*place)])
    assert all(text[one.start : one.end] == text[one.start : one.end].strip() for one in found)


@given(st.lists(values, max_size=5).flatmap(inside), values.flatmap(written), st.data())
def test_what_is_put_in_stands_alone(made, put, data):
    """The chosen values are others, and all that is left of the text is as it was."""
    text, place = made
    found = find_values(text, place)
    chosen = data.draw(st.sets(st.sampled_from(range(len(found))) if found else st.nothing()))
    order = data.draw(st.permutations(sorted(chosen)))
    spliced = apply_splices(text, [Splice(*found[at], put.encode()) for at in order])
    wanted = json.loads(text[slice(*place)])
    for at in chosen:
        wanted[at] = json.loads(put)
    grown = len(spliced) - len(text)
    assert json.loads(spliced[place.start : place.end + grown]) == wanted
    assert spliced[: place.start] == text[: place.start]
    assert spliced[place.end + grown :] == text[place.end :]
    if not chosen:
        assert spliced is text


@given(st.lists(values, max_size=6).flatmap(inside), st.data())
def test_what_is_cut_out_takes_its_comma_along(made, data):
    text, place = made
    found = find_values(text, place)
    gone = data.draw(st.sets(st.sampled_from(range(len(found))) if found else st.nothing()))
    cut = apply_splices(text, cut_out([found[at] for at in gone], found))
    wanted = [one for at, one in enumerate(json.loads(text[slice(*place)])) if at not in gone]
    assert json.loads(cut[place.start : place.end - len(text) + len(cut)]) == wanted
    for at, one in enumerate(found):
        if at not in gone:
            assert text[slice(*one)] in cut


@given(st.dictionaries(texts, values, min_size=1, max_size=3), values, st.data())
def test_a_key_that_stands_twice_is_refused(fields, value, data):
    """However it is written the second time."""
    name = data.draw(st.sampled_from(sorted(fields)))
    again = f"{data.draw(quoted(name))}:{data.draw(written(value))}"
    body = data.draw(written(fields)).rstrip()
    text = f"{body[:-1].rstrip()},{data.draw(spaces)}{again}}}".encode()
    with pytest.raises(WireError, match="stands twice"):
        find_fields(text)


@pytest.mark.parametrize("text", [b"", b"5", b"[]", b'"x"', b"{", b'{"a"}', b'{"a":1}x', b"\xff", b"[" * 9_999])  # fmt: skip
def test_what_is_no_object_is_refused(text):
    with pytest.raises(WireError):
        find_fields(text)


@pytest.mark.parametrize("text", [b"", b"5", b"{}", b'"x"', b"[", b"[1,]", b"[1]x", b"\xff", b"[" * 9_999])  # fmt: skip
def test_what_is_no_list_is_refused(text):
    with pytest.raises(WireError):
        find_values(text, Slice(0, len(text)))
