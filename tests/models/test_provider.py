"""The scripted provider, as the official SDK reads it: Responses, streamed and not."""

import json
import urllib.request

import httpx2
import openai
import pytest

from foldline.dialects.base import DIALECTS, get_dialect
from foldline.dialects.sse import SseReader
from foldline.testing import Provider, Trouble
from foldline.testing.provider import written

CALL = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}}
MESSAGE = {"content": "Let me look.", "tool_calls": [CALL], "reasoning": "sealed"}


def client_of(provider: Provider) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0, timeout=5)


def test_a_response_is_answered():
    with Provider([MESSAGE]) as provider:
        response = client_of(provider).responses.create(model="m", input="Hi")
    assert response.output_text == "Let me look."
    assert [one.type for one in response.output] == ["reasoning", "message", "function_call"]
    assert response.output[2].arguments == '{"a": 1}'
    assert response.usage.input_tokens > 0


def test_a_response_is_streamed():
    """The SDK's own accumulator gives what is not streamed."""
    with Provider([MESSAGE]) as provider, client_of(provider).responses.stream(model="m", input="Hi") as stream:  # fmt: skip
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "Let me look."
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 3  # fmt: skip


def test_what_is_too_long_is_refused_in_the_words_of_openai():
    with Provider(window=20) as provider, pytest.raises(openai.BadRequestError) as refused:
        client_of(provider).responses.create(model="m", input="many words " * 40)
    assert refused.value.code == "context_length_exceeded"


@pytest.mark.parametrize("trouble", [one for one in Trouble if one is not Trouble.TIMEOUT])
@pytest.mark.parametrize("streams", [False, True])
def test_every_trouble_is_known_here_too(trouble, streams):
    """An answer, or the SDK's own error: never a broken server."""
    with Provider([trouble]) as provider:
        provider.late = 0.01
        responses = client_of(provider).responses
        try:
            if streams:
                answer = [*responses.create(model="m", input="Hi", stream=True)]
                words = "".join(getattr(one, "delta", "") for one in answer)
            else:
                words = responses.create(model="m", input="Hi").output_text
        except (openai.APIError, json.JSONDecodeError, httpx2.HTTPError):
            assert trouble in (Trouble.RATE, Trouble.ERROR, Trouble.CUT)
        else:
            assert trouble is not Trouble.ECHO or words == "Hi"


@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_streamed_is_what_is_not(name):
    """In every dialect of the registry, as our own assembly reads it."""
    dialect = get_dialect(name)
    said = {key: value for key, value in MESSAGE.items() if key != "reasoning"}
    whole, events = written(name, {"model": "m"}, said, 9)
    lines, made = SseReader(), dialect.make_assembly()
    for event in lines.feed("".join(events).encode()):
        made.add_event(event.data)
    assert made.done
    one, two = (dialect.parse_answer(body, None, None)[0] for body in (whole, made.build_body()))
    assert one.parts == two.parts
    assert dialect.is_answer(whole)


@pytest.mark.parametrize("name", ["anthropic", "gemini", "openai-responses"])
def test_reasoning_is_streamed_as_it_is_not(name):
    dialect, made = get_dialect(name), get_dialect(name).make_assembly()
    whole, events = written(name, {"model": "m"}, {**MESSAGE, "id": "7"}, 9)
    for event in SseReader().feed("".join(events).encode()):
        made.add_event(event.data)
    one, two = (dialect.parse_answer(body, None, None)[0] for body in (whole, made.build_body()))
    assert one.parts == two.parts
    assert "sealed" in str(one.parts)


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_is_answered_at_its_path(name):
    with Provider() as provider:
        field = get_dialect(name).messages
        body = json.dumps({"model": "m", field: [{"role": "user", "content": "Hi"}]}).encode()
        path = DIALECTS[name].paths[0]
        url = f"{provider.url}{path if path.startswith('/v1') else '/v1' + path}"
        with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:  # noqa: S310
            assert get_dialect(name).is_answer(json.loads(answer.read()))
