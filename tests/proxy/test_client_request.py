"""Bodies of clients, split into messages: also where a turn is several items, or a text is alone."""

import json

import pytest
from mutants import broken

from foldline.dialects.base import get_dialect
from foldline.proxy.client_request import read_request

RESPONSES = get_dialect("openai-responses")
LONG = 40  # times: requests that begin alike are found by their first 400 bytes


def body_of(given) -> bytes:
    return json.dumps({"model": "m", "input": given}).encode()


@pytest.mark.parametrize("words", ["Hi", "Hi there, once more", ""])
def test_a_text_alone_is_read_every_time(words):
    """An SDK's retry has the same bytes; another text may begin alike."""
    for given in (words, words, f"{words} and more", words):
        request = read_request(RESPONSES, body_of(given))
        assert request.extract_message(0) == json.dumps(given).encode()
        assert [one.role for one in request.described] == ["user"]


def test_a_text_alone_is_the_message_that_it_is_in_a_list():
    listed = [{"role": "user", "content": [{"type": "input_text", "text": "A text alone"}]}]
    one, two = (read_request(RESPONSES, body_of(given)) for given in ("A text alone", listed))
    assert one.chain == two.chain


def count_messages(items):
    """How many messages there are in the first item, in the first two, and so on."""
    bodies = [body_of(items[:end]) for end in range(1, len(items) + 1)]
    return [len(read_request(RESPONSES, body).places) for body in bodies]


def test_a_turn_that_is_taken_for_two_is_noticed():
    """A check that cannot fail is a defect."""
    words = ("A turn that is taken for two. " * LONG, "One.", "Two.")
    items = [{"role": role, "content": said} for role, said in zip(("user", "assistant", "assistant"), words, strict=True)]  # fmt: skip
    with broken("foldline.proxy.client_request", "count -= 1  # the turn may go on", "pass"):
        assert count_messages(items) != [1, 2, 2]


def test_a_turn_that_goes_on_is_one_message():
    """Also behind a request that ended within it: what was known of the turn holds no more."""
    items = [
        {"role": "user", "content": "A turn that goes on. " * LONG},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
    ]
    assert count_messages(items) == [1, 2, 2, 2, 3]
    whole = read_request(RESPONSES, body_of(items))
    anew = read_request(RESPONSES, json.dumps({"input": items}, indent=1).encode())
    assert whole.chain == anew.chain
