"""The gateway before a real model: official SDKs, both dialects, streamed and not."""

import anthropic
import openai
import pytest

from foldline.testing.gateways import Served

pytestmark = pytest.mark.real
BOTH = pytest.mark.parametrize("store", [None, ":memory:"], ids=["plain", "sessions"])
SAID = [{"role": "user", "content": "Say one word."}]


@BOTH
def test_openai(model_server, store):
    with Served(model_server.url, store=store) as gateway, openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:  # fmt: skip
        create = client.chat.completions.create
        whole = create(model="smollm2", messages=SAID, max_tokens=4, temperature=0)
        assert whole.usage.completion_tokens > 0
        pieces = list(create(model="smollm2", messages=SAID, max_tokens=4, temperature=0, stream=True))  # fmt: skip
        streamed = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
        assert streamed == whole.choices[0].message.content
        schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}  # fmt: skip
        shaped = create(model="smollm2", messages=SAID, max_tokens=30, response_format=schema)
        assert shaped.choices[0].message.content.lstrip().startswith("{")
        assert client.models.list().data
        with pytest.raises(openai.APIStatusError) as fault:
            create(model="smollm2", messages=[{"role": "nobody"}], max_tokens=4)
        assert "x-foldline-error" not in fault.value.response.headers  # the server's own words


@BOTH
def test_anthropic(model_server, store):
    with Served(model_server.url, store=store) as gateway, anthropic.Anthropic(base_url=gateway.url, api_key="none") as client:  # fmt: skip
        asked = {
            "model": "smollm2",
            "messages": SAID,
            "max_tokens": 4,
            "extra_body": {"temperature": 0},
        }
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = "".join(stream.text_stream)
        assert streamed == whole.content[0].text
        assert client.messages.count_tokens(model="smollm2", messages=SAID).input_tokens > 0
