"""Places of values in JSON texts: found by bytes, and every other byte stays."""

import gc
import json
import sys
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_json import numbers, quoted, spaces, texts, written

from foldline.dialects import json_slices
from foldline.dialects.client_messages import digest_of
from foldline.dialects.json_slices import (
    DEEPEST,
    Slice,
    Splice,
    apply_splices,
    check_readable,
    convert_to_json,
    cut_out,
    encode_normalised,
    find_fields,
    find_values,
    has_more_values,
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


@pytest.fixture(params=[7, 262_144])
def piece(request, monkeypatch):
    """The bytes that are looked at in one step: few, so that strings and escapes are cut."""
    monkeypatch.setattr(json_slices, "_PIECE", request.param)


def count_values(value):
    """The values of a JSON value, itself included; an empty list or object counts as two."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count_values, inner)) + (isinstance(value, dict | list) and not value)


brackets = st.text(st.sampled_from('[]{},:"\\x'), max_size=30)
nested = st.recursive(
    brackets | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(brackets, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.usefixtures("piece")
@given(nested.flatmap(lambda value: st.tuples(st.just(value), written(value))))
def test_values_are_counted_on_bytes_whatever_the_texts_say(made):
    value, text = made
    count = count_values(value)
    assert has_more_values(text.encode(), count - 1)
    assert not has_more_values(text.encode(), count)


@pytest.mark.usefixtures("piece")
@given(st.integers(DEEPEST - 2, DEEPEST + 2), st.sampled_from("[{"), brackets)
def test_depth_is_counted_on_bytes_whatever_the_texts_say(depth, kind, text):
    value = text
    for _ in range(depth):
        value = [text, value] if kind == "[" else {text: value}
    body = msgspec.json.encode(value)
    for check in (lambda: check_readable(body), lambda: convert_to_json({"in": value} if depth < DEEPEST else value if kind == "{" else {"in": value[1]})):  # fmt: skip
        if depth > DEEPEST:
            with pytest.raises(WireError, match="levels deep"):
                check()
        else:
            check()


def normalise_slowly(value):
    """What digests mean by equal numbers, value by value."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: normalise_slowly(one) for key, one in value.items()}
    return [normalise_slowly(one) for one in value] if isinstance(value, list) else value


floats = st.floats(allow_nan=True, allow_infinity=True) | st.integers().map(float)
mixed = st.recursive(
    floats | st.integers(-(2**80), 2**80) | brackets | st.sampled_from(["[1.0]", ":1.5,", "1e9", "-0.0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(mixed)
def test_whole_floats_are_written_as_integers(value):
    wanted = msgspec.json.encode(normalise_slowly(value), order="sorted")
    assert encode_normalised(value) == wanted


def count_opcodes(work):
    """How many steps of Python a call takes."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("value", ["{}", "[[]]", '"[{"', "1", "null"])
def test_checks_take_no_step_of_python_per_value(value):
    """A body of ten kilobytes, unpacked, costs what its bytes cost, and not a step for each."""
    gc.disable()  # its callbacks take steps, too
    try:
        few, many = (
            count_opcodes(partial(run_checks, f"[{','.join([value] * count)}]".encode()))
            for count in (300, 3_000)
        )
    finally:
        gc.enable()
    assert many <= few + 50


def run_checks(body):
    """All checks that a message's bytes pass."""
    check_readable(body)
    found = msgspec.json.decode(body)
    convert_to_json({"in": found})
    digest_of(found)
    has_more_values(body, 100)
