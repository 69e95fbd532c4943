"""Errors of providers and what they mean: each rule, real bodies, and bodies that are none (R-12)."""

import json
import time
from email.utils import formatdate

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.dialects.provider_errors import Fault, classify_error, of_exception

TPM = "Request too large for m on tokens per min (TPM): Limit 6000, Requested 9000, please reduce"
LONG = "prompt is too long: 2,001 tokens > 2000 maximum"
OLD = "This model's maximum context length is 100 tokens. However, "
EXAMPLES = [
    # The shapes: every wrapper around the same words.
    (400, {"error": {"message": LONG, "type": "invalid_request_error"}}, "tokens", 2000, 2001),
    (400, [{"error": {"code": 400, "message": LONG, "status": "INVALID_ARGUMENT"}}], "tokens", 2000, 2001),
    (400, {"object": "error", "message": LONG, "code": 40303}, "tokens", 2000, 2001),
    (400, {"error": LONG}, "tokens", 2000, 2001),
    (400, json.dumps(LONG), "tokens", 2000, 2001),
    (400, {"detail": [{"loc": ["body"], "msg": LONG}]}, "tokens", 2000, 2001),
    (400, {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"message": LONG})}}},
     "tokens", 2000, 2001),
    (400, {"error": {"message": json.dumps({"error": {"message": LONG}})}}, "tokens", 2000, 2001),
    (None, f"litellm.BadRequestError: AnthropicException - {json.dumps({'error': {'message': LONG}})}",
     "tokens", 2000, 2001),
    (None, f"litellm.BadRequestError: x - {json.dumps({'error': {'message': LONG}}).encode()!r}", "tokens", 2000, 2001),
    (None, f"Error code: 400 - {({'error': {'message': LONG, 'param': None}})!r}", "tokens", 2000, 2001),
    (None, f"Error code: 400 - {({'error': {'message': LONG}})!r}"[:-3], "tokens", 2000, 2001),
    (None, f"ValidationException: {LONG}", "tokens", 2000, 2001),
    (200, f'event: error\ndata: {json.dumps({"type": "error", "error": {"message": LONG}})}\n\n', "tokens", 2000, 2001),
    (200, {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "x"}}},
     "tokens", None, None),
    (200, 'data: {"type": "start", "message": "Overloaded"}\n\ndata: {"error": {"message": "' + LONG, "tokens", 2000, 2001),
    (200, 'data: {"type": "delta", "text": "prompt is too long"}\n\n', "other", None, None),
    # What only sounds like an overflow.
    (429, {"error": {"message": "prompt is too long"}}, "rate", None, None),
    (400, "Throttling error: Too many tokens, please wait before trying again.", "rate", None, None),
    (None, "An error occurred (ThrottlingException) when calling the Converse operation: Too many tokens", "rate", None, None),
    (413, {"error": {"message": TPM, "code": "rate_limit_exceeded"}}, "rate", 6000, 9000),
    (429, {"error": {"message": "You exceeded it", "code": "insufficient_quota"}}, "other", None, None),
    (400, {"error": {"message": "?", "status": "RESOURCE_EXHAUSTED"}}, "rate", None, None),
    (400, {"error": {"message": "Sent message larger than max (9 vs. 8)", "status": "RESOURCE_EXHAUSTED"}}, "bytes", 8, 9),
    (402, "prompt is too long", "other", None, None),
    (400, "Prompt tokens limit exceeded: 230799 > 91442. To increase, visit", "other", None, None),
    (400, "Invalid 'messages[2].name': string too long. Expected a string with maximum length 64, but got", "other", None, None),
    (400, "Invalid 'tools': array too long. Expected an array with maximum length 128", "other", None, None),
    (500, "context deadline exceeded: maximum context length", "overloaded", None, None),
    (499, "context canceled while the prompt is too long", "other", None, None),
    # The limit on the answer, before the window; sums are about the window.
    (400, "max_tokens: 128 > 64, which is the maximum allowed number of output tokens", "output", 64, 128),
    (400, "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 64, but got 128 instead.",
     "output", 64, 128),
    (400, "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3", "other", None, None),
    (422, "`inputs` tokens + `max_new_tokens` must be <= 20. Given: 15 `inputs` tokens and 9", "tokens", 20, 15),
    (422, "`max_new_tokens` must be <= 20", "output", 20, None),
    (400, "input length and `max_tokens` exceed context limit: 90 + 20 > 100, decrease", "tokens", 100, 90),
    (400, "a maxOutputTokens value of 9 but the supported range is from 1 (inclusive) to 6 (exclusive)", "output", 5, 9),
    # What the count counts.
    (400, OLD + "you requested 120 tokens (90 in the messages, 30 in the completion).", "tokens", 100, 120),
    (400, OLD + "you requested 9 output tokens and your prompt contains 999 characters", "tokens", 100, None),
    (400, OLD + "you requested 9 output tokens and your prompt contains at least 99 input tokens", "tokens", 100, 99),
    (400, "too many tokens: size limit exceeded by 5 tokens. The limit for this model is 10 tokens.", "tokens", 10, 15),
    (500, "prompt too long; exceeded max context length by 4096 tokens", "tokens", None, None),
    (400, {"error": {"message": "request (9 tokens) exceeds the available context size (8 tokens)", "n_ctx": 16,
                     "n_prompt_tokens": 17}}, "tokens", 16, 17),
    (400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum", "n_ctx": 16}}, "tokens", 16, 9),
    (400, "Range of input length should be [1, 0]", "tokens", None, None),  # a window of nothing is not learned
    # 413, and what the status says alone.
    (413, {"error": {"message": "Request exceeds the maximum size"}}, "bytes", None, None),
    (413, "<html><head><title>413 Request Entity Too Large</title></head></html>", "bytes", None, None),
    (413, "Request size exceeds model context window", "tokens", None, None),
    (413, b"", "tokens", None, None),
    (None, "413 status code (no body)", "tokens", None, None),
    (400, "messages.4.content.1.image.source: image exceeds 5 MB maximum: 60 bytes > 50 bytes", "media", 50, 60),
    (400, {"error": {"message": "?", "code": "invalid_image_format"}}, "media", None, None),
    (400, "API key not valid. Please pass a valid API key.", "auth", None, None),
    (403, None, "auth", None, None),
    (200, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", None, None),
    (200, {"type": "error", "error": {"type": "authentication_error", "message": "?"}}, "auth", None, None),
    (529, None, "overloaded", None, None),
    (404, None, "other", None, None),
]  # fmt: skip


def judged(examples):
    """The examples that are not what they should be."""
    wrong = []
    for status, body, *wanted in examples:
        for sent in (body, json.dumps(body)) if isinstance(body, dict | list) else (body,):
            found = classify_error(sent, status=status)
            told = found.message == LONG or wanted != ["tokens", 2000, 2001]
            if [found.kind, found.limit, found.count] != wanted or not told:
                wrong.append((status, sent, wanted, found))
    return wrong


def test_each_rule():
    assert judged(EXAMPLES) == []


def test_real_bodies(shared):
    """R-12: every body that was collected, with its limit and its count (R-08)."""
    rows = json.loads((shared / "wire_errors.json").read_text())
    names = {"output_limit": "output"}
    examples = [
        (
            row["status"],
            row["body"],
            names.get(row["class"], row["class"]),
            row["limit"],
            row["count"],
        )
        for row in rows
    ]
    wrong = judged(examples)
    print(f"{len(rows) - len(wrong)} of {len(rows)} real errors read right")
    assert wrong == []
    named = [classify_error(row["body"], status=row["status"], filled=0.99) for row in rows]
    assert not [fault for fault in named if fault.suspected], "each is known for what it is"


@pytest.mark.parametrize(
    ("body", "status", "filled", "kind", "suspected"),
    [
        ("Bad Request", 400, 0.86, "tokens", True),
        ({"error": {"message": "?", "type": "invalid_request_error"}}, 200, 0.86, "tokens", True),
        ("", 400, 0.86, "tokens", True),
        (None, None, 0.86, "tokens", True),
        ("Bad Request", 400, 0.85, "other", False),
        ("Bad Request", 400, None, "other", False),
        ("Bad Request", 400, float("nan"), "other", False),
        ("", 404, 0.99, "other", False),
        ("", 500, 0.99, "overloaded", False),
        ("", 401, 0.99, "auth", False),
        (LONG, 400, 0.99, "tokens", False),
        ("`tool_use` ids were found without `tool_result` blocks", 400, 0.99, "other", False),
        ({"error": {"message": "?", "code": "array_above_max_length"}}, 400, 0.99, "other", False),
        ({"error": {"message": "?", "code": "insufficient_quota"}}, 400, 0.99, "other", False),
    ],
)
def test_an_unexplained_refusal_of_a_full_window_is_suspected(
    body, status, filled, kind, suspected
):
    """R-12: above 85 % only, and only where nobody says what is wrong."""
    found = classify_error(body, status=status, filled=filled)
    assert (found.kind, found.suspected) == (kind, suspected)


@pytest.mark.parametrize(
    ("body", "header", "seconds"),
    [
        ("Limit 30, Used 20, Requested 11. Please try again in 644ms.", None, 0.644),
        ("Please try again in 11.054s. Visit", None, 11.054),
        ("Please try again in 1m30.5s.", None, 90.5),
        ("have exceeded token rate limit. Please retry after 22 seconds.", None, 22),
        ("Please retry in 20.04s.", None, 20.04),
        ({"error": {"details": [{"retryDelay": "31s"}], "message": "x"}}, None, 31),
        ("Please retry in 20.04s.", "7", 7),
        ("Please retry in 20.04s.", "0", 0),
        ("", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("", "-1", None),
        ("", "9999999999", 2**31),
        ("", "9" * 400, 2**31),
        ("Please retry in 99999999999s.", None, 2**31),
        ({"error": {"details": [{"retryDelay": "99999999999s"}], "message": "x"}}, None, 2**31),
    ],
)
def test_how_long_to_wait(body, header, seconds):
    assert classify_error(body, status=429, retry_after=header).retry_after == pytest.approx(
        seconds
    )


NOW = 1_792_567_680  # Wed, 21 Oct 2026 07:28:00 GMT


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("Wed, 21 Oct 2026 08:28:00 GMT", 3_600),
        ("Wednesday, 21-Oct-26 07:28:08 GMT", 8),
        ("Wed Oct 21 07:28:08 2026", 8),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 2**31),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("7", 7),
        ("soon", None),
    ],
)
def test_a_date_to_retry_at_is_compared_with_the_date_of_the_answer(header, seconds):
    date = formatdate(NOW, usegmt=True)
    assert date == "Wed, 21 Oct 2026 07:28:00 GMT"
    assert classify_error("", status=429, retry_after=header, date=date).retry_after == seconds
    told = sdk_error(429, "", {"Retry-After": header, "Date": date})
    assert of_exception(told).retry_after == seconds


@given(st.integers(0, 4 * 10**9), st.integers(-(10**6), 10**6))
def test_dates_of_any_kind_are_waits(now, wait):
    told, date = (formatdate(one, usegmt=True) for one in (max(now + wait, 0), now))
    found = classify_error("", status=429, retry_after=told, date=date).retry_after
    assert found == max(wait, 0)


def test_the_message_is_the_providers_own_words():
    wrapped = f"litellm.RateLimitError: OpenAIException - Error code: 429 - { ({'error': {'message': TPM}})!r}"
    assert classify_error(wrapped) == Fault("rate", TPM, limit=6000, count=9000)
    assert (
        classify_error("litellm.BadRequestError: OpenAIException - It's so.").message == "It's so."
    )
    assert (
        classify_error({"error": "Bad Request", "message": LONG, "statusCode": 400}).message == LONG
    )
    assert len(classify_error("x" * 10_000).message) == 500
    assert classify_error("a\ud800b").message == "a\ufffdb"
    assert classify_error(None).message == ""


def test_python_and_broken_json():
    """Both kinds of quotes, escapes, what a log cut off, what was never closed."""
    fault = {"error": {"message": 'It\'s "x"\n\té' + LONG, "n": (1, [None, True]), "type": "t"}}
    printed = f"Error code: 400 - {fault!r}"
    assert classify_error(printed).message == fault["error"]["message"]
    for cut in range(printed.index("maximum") + 7, len(printed)):
        assert classify_error(printed[:cut]).kind == "tokens"
    assert classify_error('{"error": {"message": "' + LONG + '", "x": \\ud800').limit == 2000


def test_a_stream_is_searched_for_its_error():
    """The words of an answer are no error, whatever they say."""
    told = {"type": "content_block_delta", "delta": {"text": "error: " + LONG}}
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    stream = "".join(f"event: x\r\ndata: {json.dumps(one)}\r\n\r\n" for one in (told, error))
    assert classify_error(stream, status=200) == Fault("overloaded", "Overloaded")


def sdk_error(status, body, headers=None):
    """What the openai SDK raises for a response."""
    content = body if isinstance(body, str) else json.dumps(body)

    def answer(_request):
        return httpx2.Response(status, text=content, headers=headers)

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    asked = openai.OpenAI(
        api_key="-", base_url="http://localhost", http_client=client, max_retries=0
    )
    with client, pytest.raises(openai.APIStatusError) as raised:
        asked.models.list()
    return raised.value


def test_exceptions_of_an_sdk():
    """The openai SDK's own, made as it makes them."""
    error = {
        "error": {"message": LONG, "type": "invalid_request_error", "param": None, "code": None}
    }
    assert of_exception(sdk_error(400, error)) == Fault("tokens", LONG, limit=2000, count=2001)
    wait = of_exception(sdk_error(429, {"error": {"message": "slower"}}, {"Retry-After": "3"}))
    assert wait == Fault("rate", "slower", retry_after=3.0)
    assert of_exception(sdk_error(429, "", {"retry-after-ms": "250"})).retry_after == 0.25
    assert of_exception(sdk_error(413, "")).kind == "tokens"
    assert of_exception(sdk_error(400, ""), filled=0.9).suspected
    request = httpx2.Request("POST", "http://localhost")
    assert of_exception(openai.APITimeoutError(request)).kind == "overloaded"
    assert of_exception(openai.APIConnectionError(request=request)).kind == "overloaded"


def test_exceptions_by_their_attributes_alone():
    """Of libraries that are not here: botocore keeps the body in `response`, google in `details`."""

    class ClientError(Exception):
        response = {  # noqa: RUF012
            "Error": {"Code": "ThrottlingException", "Message": "Too many tokens"},
            "ResponseMetadata": {"HTTPStatusCode": 400},
        }

    class APIError(Exception):
        code = 400
        details = {"error": {"code": 400, "message": LONG}}  # noqa: RUF012

    class Hostile(Exception):  # noqa: N818
        @property
        def body(self):
            raise KeyError

        def __str__(self):
            raise KeyError

    assert of_exception(ClientError()) == Fault("rate", "Too many tokens")
    assert of_exception(APIError()) == Fault("tokens", LONG, limit=2000, count=2001)
    assert of_exception(Hostile()) == Fault("other", "")
    assert of_exception(TimeoutError()).kind == "overloaded"
    assert of_exception(ValueError(LONG)).limit == 2000


KEYS = st.sampled_from(
    ["error", "message", "type", "code", "metadata", "raw", "details", "n_ctx", "retryDelay"]
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=9)
    | st.text(st.characters(codec=None) | st.sampled_from("{}[]'\"\\\x00\ud800"), max_size=20)
    | st.sampled_from([LONG, TPM, "{'error': {'message': 'x", "data: {", 10**400])
)  # fmt: skip
NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | SCALARS, inner, max_size=4))  # fmt: skip


DATES = st.lists(
    st.text(max_size=4) | st.sampled_from(["Wed,", "21", "Oct", "2026", "0", "07:28:00", "-9999", "GMT", "9" * 20]),
    max_size=8,
).map(" ".join)  # fmt: skip
HEADERS = st.none() | st.text() | DATES


@given(body=st.binary() | NESTED, status=st.none() | st.integers(), header=HEADERS, date=HEADERS)
def test_nothing_raises(body, status, header, date):
    """Whatever a server, a proxy or a caller makes up."""
    found = classify_error(body, status=status, filled=0.9, retry_after=header, date=date)
    assert 0 <= (found.retry_after or 0) <= 2**31
    assert len(found.message) <= 500
    found.message.encode()
    assert classify_error(repr(body), status=status).message is not None
    assert isinstance(of_exception(RuntimeError(body)), Fault)


@pytest.mark.parametrize(
    "unit",
    ["{", "[", "{'a': ", '{"error":', "'", "\\", "9", "9,", "\x00", "\ud800", "error: ", "{'message': '",
     "Error code: 400 - ", 'data: {"error\n\n', "event: error\ndata: {'\n\n", "b'{", "{'raw': \"", "limit 1,",
     "prompt contains 1 tokens", "max_tokens ", "size limit exceeded by 1 tokens ", "try again in 1m", "<title>"],
)  # fmt: skip
def test_a_megabyte_takes_no_time(unit, timed):
    """Linear, also for texts made to be slow: nothing here waits for a second."""
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    classify_error(text, status=400, filled=0.9)
    classify_error({"error": {"message": text}})
    assert time.process_time() - start < timed(1)


def test_ten_thousand_levels():
    deep = {"message": LONG}
    for _ in range(10_000):
        deep = {"error": deep}
    assert (
        classify_error(deep).kind == "other"
    )  # nobody wraps like this: it is not followed to the end
    cyclic = {"message": LONG}
    cyclic["error"] = [cyclic, cyclic]
    assert classify_error(cyclic).kind == "tokens"
    assert (
        classify_error('{"x": ' + "[" * 10_000 + "]" * 10_000 + ', "message": "' + LONG + '"}').kind
        == "tokens"
    )


MEANING = UNWRAP = "foldline.dialects.provider_errors"
MUTANTS = [
    # The exclusions: billing, rates, fields, time.
    (MEANING, "if status == 402 or build_pattern(UNPAID).search(text):", "if status == 402:"),
    (MEANING, "if status == 402 or build_pattern(UNPAID)", "if build_pattern(UNPAID)"),
    (MEANING, "if _is_rate_limited(said, text, status=status):", "if False:"),
    (MEANING, "return status == 429 or named or", "return status == 429 or"),
    (MEANING, "if build_pattern(LATE).search(text):", "if False:"),
    (MEANING, "if build_pattern(CANCELLED).search(text):", "if False:"),
    # The counts and the limits.
    (MEANING, 'limit = said["below"] - 1', 'limit = said["below"]'),
    (MEANING, 'count = limit + said["over"]', 'count = said["over"]'),
    (MEANING, "limit=limit or None", "limit=limit"),
    (MEANING, "limit=said.limit or fault.limit", "limit=fault.limit or said.limit"),
    (MEANING, 'n.replace(",", "")', 'n.partition(",")[0]'),
    # The status.
    (MEANING, "if status == 413 and not said.texts:", "if False:"),
    (MEANING, "if status is None or status < 400:", "if status is None:"),
    (MEANING, "if numbers:\n        return numbers", "if False:\n        return None"),
    # The wrappers.
    (UNWRAP, "elif not (_visit_stream(text, said, depth) or _visit_embedded(text, said, depth)):",
     "elif not _visit_stream(text, said, depth):"),
    (UNWRAP, "elif not (_visit_stream(text, said, depth) or _visit_embedded(text, said, depth)):",
     "elif not _visit_embedded(text, said, depth):"),
    (UNWRAP, 'for one in cast("list[Any]", value)[:4]:', "for one in ():"),
    (UNWRAP, "    whole = _parse_json(text)\n", "    whole = None\n"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "line", "instead"), MUTANTS)
def test_broken_rules_are_noticed(module, line, instead):
    """Each rule, taken out or turned round, makes an example wrong."""
    with broken(module, line, instead):
        assert judged(EXAMPLES)
