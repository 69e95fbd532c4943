"""Both official SDKs behind one port, against a server on a real port."""

import asyncio
import builtins
import json
import sys
import time

import pytest

from foldline.dialects import base
from foldline.errors import BadInput, ModelFailed
from foldline.models.clients import client
from foldline.models.retries import is_retryable
from foldline.testing import Provider, Trouble
from foldline.testing.provider import HALF

NAMES = {"openai": "gpt-x", "anthropic": "claude-x"}
BOTH = pytest.mark.parametrize("sdk", NAMES)
ASKED = {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 20}


def a_client(provider, sdk, **given):
    end = "/v1" if sdk == "openai" else ""
    return client(given.pop("name", NAMES[sdk]), base_url=provider.url + end, **given)


async def said(model, request=None, **given):
    try:
        return await model.say(request or {"model": model.name, **ASKED}, **given)
    finally:
        await model.close()


def events(answer, sdk):
    own = base.choose_model_dialect(NAMES[sdk])
    return base.parse_any_message(answer, own=own, saw=None, asked=None)


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_comes_whole_with_its_usage(sdk, stream):
    """The same answer either way; streamed, each piece was heard as it came."""
    pieces = []
    with Provider(["Nothing of note happened."]) as provider:
        heard = {"heard": pieces.append} if stream else {}
        answer = asyncio.run(said(a_client(provider, sdk), **heard))
        body = provider.asked[0]
    answered, usage = events(answer, sdk)
    assert answered.parts[0].text == "Nothing of note happened."
    assert usage.input > 10
    assert usage.output == 1
    assert "".join(pieces) == ("Nothing of note happened." if stream else "")
    assert {name: body[name] for name in ASKED} == ASKED
    assert body["stream"] is stream
    asks = {"include_usage": True} if stream and sdk == "openai" else None
    assert body.get("stream_options") == asks


@BOTH
def test_a_request_goes_out_as_it_is(sdk):
    """What no SDK of today knows is sent too, and nothing is added or altered on the way."""
    request = {
        "model": "m-1",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "new_field": 1.50}]}],
        "max_tokens": 7, "of_tomorrow": {"a": [1, None]}, "temperature": 0,
    }  # fmt: skip
    with Provider() as provider:
        asyncio.run(said(a_client(provider, sdk), request))
        assert json.loads(provider.bodies[0]) == {**request, "stream": False}


def test_a_name_on_the_wire():
    """Taken off once: also of a request that no encoder of ours wrote."""
    with Provider() as provider:
        for sdk, name in (("anthropic", "anthropic/claude-x"), ("openai", "openai/gpt-oss-20b")):
            asyncio.run(said(a_client(provider, sdk, name=name), {"model": name, **ASKED}))
            asyncio.run(said(a_client(provider, sdk, name=name), ASKED))
        sent = [body["model"] for body in provider.asked]
    assert sent == ["claude-x"] * 2 + ["openai/gpt-oss-20b"] * 2


@BOTH
def test_keys_and_headers_are_sent(sdk, monkeypatch):
    """A key that is given beats the environment's; a server of one's own needs none."""
    seen = []
    with Provider() as provider:
        handler = provider._server.RequestHandlerClass
        post = handler.do_POST

        def noting(self):
            seen.append({name.lower(): value for name, value in self.headers.items()})
            post(self)

        handler.do_POST = noting
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        asyncio.run(said(a_client(provider, sdk, headers={"x-team": "blue"})))
        monkeypatch.setenv(f"{sdk.upper()}_API_KEY", "of-the-environment")
        asyncio.run(said(a_client(provider, sdk)))
        asyncio.run(said(a_client(provider, sdk, api_key="given")))
    keys = [one.get("x-api-key") or one["authorization"].split()[1] for one in seen]
    assert keys == ["none", "of-the-environment", "given"]
    assert seen[0]["x-team"] == "blue"


@BOTH
def test_no_key_and_no_server_is_told_at_once(sdk, monkeypatch, tmp_path):
    """Once, in the same words for both; a key in a header is one."""
    monkeypatch.setenv("HOME", str(tmp_path))  # a profile on disk has a key too
    for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL", "PROFILE", "ADMIN_KEY"):
        monkeypatch.delenv(f"{sdk.upper()}_{name}", raising=False)
    with pytest.raises(BadInput) as told:
        client(NAMES[sdk])
    assert str(told.value) == (
        f"no key for {NAMES[sdk]!r}: set {sdk.upper()}_API_KEY; for a server of your own say "
        "--base-url, in Python api_key= or base_url="
    )
    if sdk == "anthropic":
        assert client(NAMES[sdk], headers={"x-api-key": "k"}).name == NAMES[sdk]


@BOTH
def test_a_missing_sdk_is_named_with_its_extra(sdk, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == sdk:
            raise ImportError(f"No module named {sdk!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setitem(sys.modules, sdk, None)
    with pytest.raises(BadInput, match=rf"foldline\[{sdk}\]"):
        client(NAMES[sdk])


REFUSED = [
    (401, {"error": {"message": "Incorrect API key provided"}}, "auth", None),
    (400, {"error": {"message": "maximum context length is 8192 tokens. However, you requested 9000 tokens"}}, "tokens", 8192),
    (400, {"error": {"message": "no such thing"}}, "other", None),
    (429, {"error": {"message": "Rate limit reached"}}, "rate", None),
    (500, {"error": {"message": "boom"}}, "overloaded", None),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", None),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_every_refusal_has_its_meaning(sdk, stream):
    """R-12 through the SDKs; each is asked once: their own retries are off."""

    async def all_of_them():
        with Provider() as provider:
            model = a_client(provider, sdk)
            for status, body, kind, limit in REFUSED:
                provider.refusal = status, body
                with pytest.raises(ModelFailed) as failed:
                    await model.say({"model": "m", **ASKED}, heard=print if stream else None)
                fault = failed.value.fault
                assert (fault.kind, fault.limit, failed.value.begun) == (kind, limit, False)
                assert fault.retry_after == (0.05 if status == 429 else None)
            await model.close()
            assert len(provider.bodies) == len(REFUSED)

    asyncio.run(all_of_them())


def test_an_address_is_told_without_its_secrets():
    model = client("m", base_url="http://me:secret@127.0.0.1:1/v1?key=secret")
    with pytest.raises(ModelFailed, match=r"http://127\.0\.0\.1:1/v1 cannot be reached"):
        asyncio.run(said(model))


@BOTH
def test_nobody_there_is_told_with_the_address_and_may_pass(sdk):
    with Provider() as provider:
        model = a_client(provider, sdk)
    with pytest.raises(ModelFailed) as failed:
        asyncio.run(said(model))
    fault = failed.value.fault
    assert fault.kind == "unreachable"
    assert fault.message.startswith(f"{provider.url}{'/v1' * (sdk == 'openai')} cannot be reached")
    assert fault.message.endswith("; start it, or correct --base-url")
    assert is_retryable(fault)


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_that_breaks_is_told_with_what_was_heard(sdk, stream):
    pieces = []
    heard = {"heard": pieces.append} if stream else {}
    with Provider([Trouble.CUT]) as provider, pytest.raises(ModelFailed) as failed:
        asyncio.run(said(a_client(provider, sdk), **heard))
    assert failed.value.fault.kind == "overloaded"
    assert failed.value.begun is bool(pieces)
    assert HALF.startswith("".join(pieces))
    assert bool(pieces) is stream


@BOTH
def test_a_stream_that_ends_early_is_no_answer(sdk):
    """Closed in order, and without the end that its dialect has: cut."""
    for events_sent, begun in ((1, False), (3, True)):
        with Provider(["an answer of some words"]) as provider:
            provider.cut = events_sent
            with pytest.raises(ModelFailed, match="ended before") as failed:
                asyncio.run(said(a_client(provider, sdk), heard=print))
        assert failed.value.begun is begun


@BOTH
def test_a_listener_that_fails_is_not_taken_for_the_provider(sdk):
    def heard(_):
        raise BrokenPipeError("nobody reads")

    with Provider(["words"]) as provider, pytest.raises(BrokenPipeError):
        asyncio.run(said(a_client(provider, sdk), heard=heard))


@BOTH
@pytest.mark.parametrize(
    "trouble", [Trouble.EMPTY, Trouble.BLANK, Trouble.REFUSAL, Trouble.CALL, Trouble.ECHO]
)
def test_odd_answers_are_answers(sdk, trouble):
    """What to think of them is not the client's: both ways of getting them tell the same."""
    with Provider(lambda _: trouble) as provider:
        whole = asyncio.run(said(a_client(provider, sdk)))
        streamed = asyncio.run(said(a_client(provider, sdk), heard=lambda _: None))
    once, twice = (events(one, sdk)[0] for one in (whole, streamed))
    assert (once.parts, once.stop) == (twice.parts, twice.stop)
    expected = {"refusal": "refused"}.get(trouble.value, "done")
    assert once.stop == expected
    if trouble is Trouble.ECHO:
        assert once.parts[0].text == "Say it."


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_in_the_body_of_a_good_answer_is_an_error(sdk, stream, monkeypatch):
    """Some relays say 200 and then that all went wrong."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    def written(*_):
        return error, iter([f"data: {json.dumps(error)}\n\n"])

    monkeypatch.setattr("foldline.testing.provider.written", written)
    with Provider() as provider, pytest.raises(ModelFailed) as failed:
        asyncio.run(said(a_client(provider, sdk), heard=print if stream else None))
    assert failed.value.fault.kind == "overloaded"


# a call that is cancelled is over, here and there.


async def cancelled(provider, sdk, *, stream, only=None):
    """Cancel a call that stands still; the seconds until here and until the server knew."""
    model, pieces = a_client(provider, sdk), []
    heard = {"heard": pieces.append} if stream else {}
    asked = model.say({"model": "m", **ASKED}, **heard)
    task = asyncio.ensure_future(only(asked) if only else asked)
    while not provider.bodies or (provider.stall and not pieces):  # noqa: ASYNC110 - of a thread
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    here = time.monotonic() - begun
    while not provider.left and time.monotonic() < begun + 1:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    there = provider.left[0] - begun if provider.left else None
    await model.close()
    return here, there


@BOTH
@pytest.mark.parametrize("where", ["whole", "before the first token", "in the middle"])
def test_a_cancelled_call_ends_within_a_second(sdk, where, timed):
    """R-53, against a server that never goes on: and it sees the connection closed."""
    script = ["words that come " * 3] if where == "in the middle" else [Trouble.TIMEOUT]
    with Provider(script) as provider:
        provider.stall = 3 if where == "in the middle" else None
        here, there = asyncio.run(cancelled(provider, sdk, stream=where != "whole"))
    print(f"\n{sdk}, {where}: cancelled in {here * 1000:.0f} ms, the server knew in {there * 1000:.0f} ms")  # fmt: skip
    assert here < timed(1.0)
    assert there < timed(1.0)


def test_that_check_sees_a_call_that_goes_on(timed):
    """The control: a caller that only stops waiting is found out."""
    with Provider([Trouble.TIMEOUT]) as provider:
        here, there = asyncio.run(cancelled(provider, "openai", stream=False, only=asyncio.shield))
    assert here < timed(1.0)
    assert there is None
