"""A wrapped client: people's loop unchanged, through the official SDKs, against a port."""

import asyncio
import hashlib
import inspect
import json
import time

import anthropic
import openai
import pytest
from raw_upstream import Upstream, head

import foldline
from foldline.core.log import ModelSaid, Opened, Rewound, UserSaid, WindowLearned
from foldline.core.spine import Range
from foldline.dialects import anthropic as messages
from foldline.dialects import openai_chat as chat
from foldline.errors import BadInput
from foldline.testing.provider import Provider, written

WORDS = "The run printed nothing of note, and the file is as it was. " * 6
CALL = {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1.50}'}}]}  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def events(client):
    session = client.foldline.session
    live = getattr(session, "aio", session).live
    return [event for _, event in asyncio.run(live.read_events(Range(0, live.view.head)))]


OPEN = []


@pytest.fixture(autouse=True)
def _closed():
    """Every client that a test made is closed with it."""
    yield
    while OPEN:
        OPEN.pop().close()


# The same loop for both SDKs: what it says, and what it gets.


class Chat:
    """A loop on openai's client."""

    def __init__(self, provider, **options):
        self.client = foldline.wrap(
            openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0), **options
        )
        OPEN.append(self.client)
        self.history = []
        self.system = "Be brief."

    def say(self, words, *, stream=False):
        """One turn."""
        self.history.append({"role": "user", "content": words})
        create = self.client.chat.completions.create
        asked = [{"role": "system", "content": self.system}, *self.history]
        if stream:
            chunks = list(create(model="m", messages=asked, stream=True))
            said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            self.history.append({"role": "assistant", "content": said})
        else:
            reply = create(model="m", messages=asked)
            said = reply.choices[0].message.content
            self.history.append(reply.choices[0].message)
        return said

    faults = staticmethod(chat.list_faults)


class Messages:
    """A loop on anthropic's client."""

    def __init__(self, provider, **options):
        self.client = foldline.wrap(
            anthropic.Anthropic(base_url=provider.url, api_key="none", max_retries=0), **options
        )
        OPEN.append(self.client)
        self.history = []
        self.system = "Be brief."

    def say(self, words, *, stream=False):
        """One turn."""
        self.history.append({"role": "user", "content": words})
        asked = {"model": "m", "messages": self.history, "max_tokens": 50, "system": self.system}
        if stream:
            with self.client.messages.stream(**asked) as streamed:
                reply = streamed.get_final_message()
        else:
            reply = self.client.messages.create(**asked)
        self.history.append({"role": "assistant", "content": reply.content})
        return reply.content[0].text

    faults = staticmethod(messages.list_faults)


BOTH = pytest.mark.parametrize("loop", [Chat, Messages])


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_outlives_its_window(loop, stream):
    """Law 1, R-08: 60 turns, a window that holds ten of them, none refused, one conversation."""
    with Provider(lambda body: f"noted {len(body['messages'])}", window=4_000) as provider:
        mine = loop(provider, window=4_000)
        for turn in range(60):
            assert mine.say(f"Turn {turn}. {WORDS}", stream=stream).startswith("noted")
        assert provider.statuses == [200] * 60
        for body in provider.asked:  # two handoffs may follow each other: a role twice is joined
            found = mine.faults(body["messages"])
            assert not [fault for fault in found if not fault.startswith("turns:")]
        session = mine.client.foldline.session
        assert session.edits
        assert len(mine.client.foldline._planner.conversations._held) == 1
        assert "Turn 0. The run" in session.recall("log:2")
        again = session.history.sent(session.asked)["messages"]
        sent = provider.asked[-1]["messages"]
        assert [_text(one) for one in sent] == [_text(one) for one in again]
        assert sent[-5:] == _plain(mine.history[:-1])[-5:]  # behind the fold: the client's own


@BOTH
def test_what_is_unedited_goes_out_as_it_came(loop):
    """What the model is sent is what the client said, until an edit is needed."""
    with Provider() as provider:
        mine = loop(provider)
        mine.say("one")
        mine.say("two")
        said = provider.asked[-1]["messages"]
        assert [(m["role"], _text(m)) for m in said if m["role"] != "system"] == [
            ("user", "one"),
            ("assistant", "ok"),
            ("user", "two"),
        ]


def _text(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(b["text"] for b in content)


def _plain(history):
    """Messages as an SDK sends them."""
    return json.loads(json.dumps(history, default=lambda one: one.to_dict()))


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_an_overflow_is_healed_by_one_retry(loop, stream):
    """R-08, R-13: nobody knew the window; the refusal states it, an edit follows, and it is kept."""
    with Provider(window=3_000) as provider:
        mine = loop(provider)
        for turn in range(40):
            mine.say(f"Turn {turn}. {WORDS}", stream=stream)
        assert provider.statuses.count(400) == 1
        at = provider.statuses.index(400)
        assert provider.statuses[at + 1] == 200
        learned = [event for event in events(mine.client) if isinstance(event, WindowLearned)]
        assert [event.window for event in learned] == [3_000]


@BOTH
def test_a_refusal_that_no_edit_heals_is_the_clients(loop):
    """R-13: one retry, then the provider's own words; other errors are not tried again."""
    with Provider(window=3_000) as provider:
        mine = loop(provider)
        for turn in range(4):
            mine.say(f"Turn {turn}. {WORDS}")
        provider.refusal = (400, {"error": {"message": "prompt is too long: 9000 tokens > 3000 maximum", "type": "invalid_request_error"}})  # fmt: skip
        before = len(provider.bodies)
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match="too long"):
            mine.say("and now?")
        assert len(provider.bodies) - before <= 2
        provider.refusal = (401, {"error": {"message": "bad key", "type": "authentication_error"}})
        before = len(provider.bodies)
        mine.history.pop()
        with pytest.raises((openai.AuthenticationError, anthropic.AuthenticationError)):
            mine.say("and now?")
        assert len(provider.bodies) - before == 1
        provider.refusal = None
        mine.history.pop()
        assert mine.say("and now?") == "ok"


@BOTH
def test_what_no_plan_fits_is_left_to_the_provider(loop, caplog):
    """It goes out as it came, with a warning that names each part; answer or refusal is theirs."""
    with Provider() as provider:
        mine = loop(provider, window=300)
        mine.system = "You shall. " * 200
        assert mine.say("more " * 90) == "ok"
        assert provider.asked[-1]["messages"][-1]["content"] == "more " * 90
        assert "cannot be made to fit 300 tokens: system" in caplog.text
        provider.refusal = (400, {"error": {"message": "prompt is too long, says the provider"}})
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as fault:
            mine.say("and more")
        assert "says the provider" in str(fault.value)


def test_calls_and_results():
    """Parallel calls through the loop; the echo of an answer may leave out and re-write."""

    def script(body):
        return "done" if body["messages"][-1]["role"] == "tool" else CALL

    with Provider(script) as provider:
        client = Chat(provider).client
        history = [{"role": "user", "content": "look"}]
        ask = client.chat.completions.create
        reply = ask(model="m", messages=history, tools=TOOLS).choices[0].message
        call = reply.tool_calls[0]
        history.append({"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": {"name": "look", "arguments": '{"at":1.5}'}}]})  # fmt: skip
        history.append({"role": "tool", "tool_call_id": call.id, "content": "a file"})
        assert ask(model="m", messages=history, tools=TOOLS).choices[0].message.content == "done"
        assert len(client.foldline._planner.conversations._held) == 1
        sent = provider.asked[-1]
        assert not chat.list_faults(sent["messages"])
        assert sent["messages"] == history  # unedited: as the client says it
        assert sent["tools"] == TOOLS


def test_conversations_are_told_apart():
    """Two at once that begin alike have a log each; one that turns off goes on in its own."""
    with Provider(lambda _: f"answer {len(provider.bodies)}") as provider:
        client = Chat(provider).client

        def say(*words):
            messages = [
                {"role": "assistant" if at % 2 else "user", "content": word}
                for at, word in enumerate(words)
            ]
            reply = client.chat.completions.create(model="m", messages=messages)
            return reply.choices[
                0
            ].message.content, client.foldline._planner.conversations.list_held()[-1].name.session

        first, one = say("hi")
        other, two = say("hi")  # the same words, anew
        assert one != two
        assert say("hi", first, "go on")[1] == one
        assert say("hi", other, "go on")[1] == two
        went, _ = say("hi", first, "go on")  # the answer is asked for once more
        turned, three = say("hi", first, "no, this way")
        assert three == one
        assert say("hi", first, "no, this way", turned, "on")[1] == one
        assert sum(isinstance(event, Rewound) for event in events(client)) == 2
        back, four = say("hi", first, "go on", went, "back to where we were")
        assert four not in (one, two)  # a branch that was rewound away is a log of its own
        assert say("hi", first, "go on", went, "back to where we were", back, "on")[1] == four
        opened = [event for event in events(client) if isinstance(event, Opened)]
        assert [event.origin.partition("@")[0] for event in opened] == ["", one]


def test_a_stream_that_breaks_off():
    """R-53: what came is kept as cut; the client may go on with it, or ask again."""
    with Provider(lambda _: "a long answer of many words") as provider:
        mine = Chat(provider)
        provider.cut = 3
        assert mine.say("tell", stream=True) == "a long ans"
        provider.cut = None
        mine.say("go on")
        kinds = [
            (event.stop) for event in events(mine.client) if type(event).__name__ == "ModelSaid"
        ]
        assert kinds == ["cut", "done"]
        assert len(mine.client.foldline._planner.conversations._held) == 1


def test_leaving_a_stream_early():
    with Provider(lambda _: "a long answer of many words") as provider:
        mine = Chat(provider)
        history = [{"role": "user", "content": "tell"}]
        stream = mine.client.chat.completions.create(model="m", messages=history, stream=True)
        next(iter(stream))
        stream.close()
        assert mine.say("again") == "a long answer of many words"


def test_a_client_that_stops_at_the_last_words_of_a_stream_stays_in_one_log():
    """Many stop at the finish reason, and close nothing: the answer is kept before they can."""
    streams = []

    def asked(client, turn, history):
        history.append({"role": "user", "content": f"turn {turn}"})
        return client.chat.completions.create(model="m", messages=history, stream=True)

    def last(words, chunk):
        words.append(chunk.choices[0].delta.content or "")
        return chunk.choices[0].finish_reason

    def answered(history, words):
        history.append({"role": "assistant", "content": "".join(words)})

    async def talk(client):
        history = []
        for turn in range(4):
            streams.append(await asked(client, turn, history))
            words = []
            async for chunk in streams[-1]:
                if last(words, chunk):
                    break
            answered(history, words)
        assert len(client.foldline._planner.conversations._held) == 1
        for stream in streams:
            await stream.close()
        await client.close()

    with Provider(lambda _: "so it is") as provider:
        asyncio.run(talk(foldline.wrap(openai.AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="n"))))  # fmt: skip
        client, history = Chat(provider).client, []
        for turn in range(4):
            streams.append(asked(client, turn, history))
            words = []
            for chunk in streams[-1]:
                if last(words, chunk):
                    break
            answered(history, words)
        assert len(client.foldline._planner.conversations._held) == 1
        said = [type(one) for one in events(client) if isinstance(one, (UserSaid, ModelSaid))]
        assert said == [UserSaid, ModelSaid] * 4
        for stream in streams[4:]:
            stream.close()


def test_async_clients():
    """The same with `await`, both SDKs, streams too."""

    async def both(url):
        async with foldline.wrap(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="n"), window=4_000) as client:  # fmt: skip
            history = []
            for turn in range(40):
                history.append({"role": "user", "content": f"Turn {turn}. {WORDS}"})
                stream = await client.chat.completions.create(
                    model="m", messages=history, stream=True
                )
                said = "".join([c.choices[0].delta.content or "" async for c in stream])
                history.append({"role": "assistant", "content": said})
            assert client.foldline.session.edits
        async with foldline.wrap(anthropic.AsyncAnthropic(base_url=url, api_key="n"), window=4_000) as client:  # fmt: skip
            history = []
            for turn in range(40):
                history.append({"role": "user", "content": f"Turn {turn}. {WORDS}"})
                reply = await client.messages.create(model="m", messages=history, max_tokens=9)
                history.append({"role": "assistant", "content": reply.content})
            assert client.foldline.session.edits

    with Provider(window=4_000) as provider:
        asyncio.run(both(provider.url))
        assert set(provider.statuses) == {200}


def test_parallel_calls_of_one_client():
    """Twenty conversations at once through one client: none takes another's words."""

    async def talk(client, name):
        history = []
        for turn in range(5):
            history.append({"role": "user", "content": f"{name} {turn}"})
            reply = await client.chat.completions.create(model="m", messages=history)
            assert reply.choices[0].message.content == f"you said {name} {turn}"
            history.append(reply.choices[0].message)

    async def all_of_them(url):
        async with foldline.wrap(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="n")) as client:
            await asyncio.gather(*(talk(client, f"n{at}") for at in range(20)))
            held = client.foldline._planner.conversations._held.values()
            # A first request whose connection broke and which the SDK tried again has one more.
            answered = [one for one in held if len(one.live.view.items) > 1]
            assert [len(one.live.view.items) for one in answered] == [10] * 20

    with Provider(lambda body: f"you said {body['messages'][-1]['content']}") as provider:
        asyncio.run(all_of_them(provider.url))
        for body in provider.asked:
            names = {m["content"].split()[0] for m in body["messages"] if m["role"] == "user"}
            assert len(names) == 1


def test_many_at_once_that_begin_alike(tmp_path):
    """The same first words from twelve tasks at a time, on a store that waits for a disk.

    Identical requests in flight share a log; from their answers on, each conversation has its own.
    """

    async def all_of_them(url):
        async with foldline.wrap(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="n"), store=str(tmp_path / "t.db")) as client:  # fmt: skip

            async def talk():
                history = [{"role": "user", "content": "hi"}]
                for _ in range(3):
                    reply = await client.chat.completions.create(model="m", messages=history)
                    history += [reply.choices[0].message, {"role": "user", "content": "on"}]

            await asyncio.gather(*(talk() for _ in range(12)))
            talks = client.foldline._planner.conversations._held
            whole = [talk for talk in talks.values() if len(talk.live.view.items) >= 6]
            assert len(whole) >= 2

    with Provider(lambda _: f"answer {len(provider.bodies)}") as provider:
        asyncio.run(all_of_them(provider.url))
        assert all(len(body["messages"]) in (1, 3, 5) for body in provider.asked)


def test_other_calls_pass_untouched():
    with Provider() as provider:
        client = Chat(provider).client
        client.embeddings.create(model="e", input="x", encoding_format="float")
        assert json.loads(provider.bodies[-1]) == {"input": "x", "model": "e", "encoding_format": "float"}  # fmt: skip
        strange = [{"role": "user", "content": 5}]  # the provider judges it
        client.chat.completions.create(model="m", messages=strange)
        assert json.loads(provider.bodies[-1])["messages"] == strange


def test_parameters_go_as_they_came():
    with Provider() as provider:
        client = Chat(provider).client
        history = [{"role": "user", "content": "x"}]
        client.chat.completions.create(model="org/m-1", messages=history, temperature=0.70, seed=7, extra_body={"x_new": {"a": [1, 2.50]}})  # fmt: skip
        assert provider.asked[-1] == {"model": "org/m-1", "messages": history, "temperature": 0.7, "seed": 7, "x_new": {"a": [1, 2.5]}}  # fmt: skip


def test_an_answer_longer_than_the_window_leaves():
    """R-04: a bound that cannot be kept free is lowered to what is free, and no other."""
    with Provider() as provider:
        client = Messages(provider, window=2_000).client
        said = [{"role": "user", "content": "x"}]
        client.messages.create(model="m", max_tokens=8_000, messages=said)
        assert 1_500 < provider.asked[-1]["max_tokens"] < 2_000
        client.messages.create(model="m", max_tokens=1_900, messages=said)
        assert provider.asked[-1]["max_tokens"] == 1_900


def test_a_file_keeps_what_passed(tmp_path):
    path = str(tmp_path / "talks.db")
    with Provider() as provider:
        mine = Chat(provider, store=path)
        mine.say("remember this")
        name = mine.client.foldline._planner.conversations.list_held()[-1].name.session
        mine.client.close()
        again = Chat(provider, store=path)  # another process: a log of its own
        again.say("and this")
        assert again.client.foldline._planner.conversations.list_held()[-1].name.session != name
    with foldline.open(path, model="m", session=name) as s:
        assert s.recall("log:2") == "remember this"


def test_asking_again_keeps_what_was_folded():
    """A client that asks anew for an answer goes on from the same folds, not from all of it."""
    with Provider(lambda _: f"noted {len(provider.bodies)}", window=4_000) as provider:
        mine = Chat(provider, window=4_000)
        for turn in range(40):
            mine.say(f"Turn {turn}. {WORDS}")
        before = provider.asked[-1]["messages"]
        mine.history = mine.history[:-2]
        mine.say(f"Turn 39. {WORDS}")
        assert provider.asked[-1]["messages"] == before


def test_what_cannot_be_wrapped():
    with pytest.raises(BadInput, match="cannot wrap a dict"):
        foldline.wrap({})


AWS = {"aws_region": "us-east-1", "aws_access_key": "a", "aws_secret_key": "b"}
OPENAI_AWS = {"aws_region": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}


class SigV4:
    """How openai's provider for Bedrock signs, without AWS' own library."""

    def prepare_request(self, request):
        """Sign it."""


class OwnAnthropic(anthropic.AnthropicBedrockMantle):
    """A class of somebody's own, made from one that signs."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: anthropic.AnthropicBedrock(**AWS),
        lambda: anthropic.AsyncAnthropicBedrock(**AWS),
        lambda: anthropic.AnthropicBedrockMantle(**AWS),
        lambda: anthropic.AsyncAnthropicBedrockMantle(**AWS),
        lambda: anthropic.AnthropicAWS(**AWS, workspace_id="w"),
        lambda: anthropic.AsyncAnthropicAWS(**AWS, workspace_id="w"),
        lambda: openai.BedrockOpenAI(**OPENAI_AWS),
        lambda: openai.AsyncBedrockOpenAI(**OPENAI_AWS),
        lambda: OwnAnthropic(**AWS),
    ],
)
def test_a_client_that_signs_is_refused(make):
    """An edited body would not match its signature; it says so, and what to do instead."""
    client = make()
    told = rf"cannot wrap a {type(client).__name__}: it signs every request .* foldline.open\(\)"
    with pytest.raises(BadInput, match=told):
        foldline.wrap(client)


def test_a_provider_that_signs_is_refused():
    """The client of openai itself, told to speak with Bedrock."""
    client = openai.OpenAI(api_key="none")
    client._provider_runtime = type("Runtime", (), {"prepare_request": SigV4().prepare_request})()
    with pytest.raises(BadInput, match="cannot wrap a OpenAI: it signs every request"):
        foldline.wrap(client)


@pytest.mark.parametrize("name", ["AnthropicVertex", "AsyncAnthropicVertex"])
def test_a_client_with_paths_of_its_own_is_refused(name):
    with pytest.raises(BadInput, match=f"cannot wrap a {name}: it speaks Vertex"):
        foldline.wrap(getattr(anthropic, name)(region="r", project_id="p", access_token="t"))  # noqa: S106


def test_a_client_of_bedrock_with_an_api_key_signs_nothing():
    with Provider() as provider:
        client = anthropic.AnthropicBedrockMantle(api_key="k", base_url=provider.url)
        with foldline.wrap(client) as wrapped:
            said = [{"role": "user", "content": "Hello"}]
            wrapped.messages.create(model="anthropic.claude-x", max_tokens=9, messages=said)
            assert wrapped.foldline.session
        assert len(provider.bodies) == 1


class Signing(anthropic.Anthropic):
    """Signs in a way that nobody could know beforehand."""

    def _prepare_request(self, request):
        digest = hashlib.sha256(request.read()).hexdigest()
        request.headers["authorization"] = f"AWS4-HMAC-SHA256 Signature={digest}"


class AsyncSigning(anthropic.AsyncAnthropic):
    """The same."""

    async def _prepare_request(self, request):
        digest = hashlib.sha256(await request.aread()).hexdigest()
        request.headers["authorization"] = f"AWS4-HMAC-SHA256 Signature={digest}"


@pytest.mark.parametrize("make", [Signing, AsyncSigning])
def test_a_signed_request_goes_out_as_it_came(make, caplog):
    """Far past the window, where any other would be folded."""
    whole = json.dumps(written("anthropic", {"model": "m"}, {"content": "ok"}, 9)[0]).encode()
    history = []
    with Upstream(lambda _: [head(length=len(whole)) + whole]) as upstream:
        client = foldline.wrap(make(base_url=upstream.url, api_key="k"), window=4_000)

        async def talk():
            for turn in range(16):
                history.append({"role": "user", "content": f"{turn} {WORDS * 3}"})
                made = client.messages.create(model="m", max_tokens=50, messages=history)
                await made if inspect.isawaitable(made) else made
                history.append({"role": "assistant", "content": "ok"})
            closed = client.close()
            await closed if inspect.isawaitable(closed) else closed

        asyncio.run(talk())
        for count, asked in enumerate(upstream.asked):
            digest = hashlib.sha256(asked.body).hexdigest()
            assert asked.header("authorization").decode().endswith(digest)
            assert len(json.loads(asked.body)["messages"]) == 2 * count + 1
        assert "it is signed, and may not be changed" in caplog.text


def test_files_that_look_alike_are_not_one():
    """What only a message's own JSON says tells conversations apart: nobody gets another's file."""
    with Provider() as provider:
        chats, talks = Chat(provider).client, Messages(provider).client
        for name in ("file-alice", "file-bob"):
            parts = [
                {"type": "file", "file": {"file_id": name}},
                {"type": "text", "text": "Sum up."},
            ]
            chats.chat.completions.create(model="m", messages=[{"role": "user", "content": parts}])
            assert provider.asked[-1]["messages"][-1]["content"] == parts
            blocks = [{"type": "document", "source": {"type": "file", "file_id": name}}, {"type": "text", "text": "Sum up."}]  # fmt: skip
            talks.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": blocks}])  # fmt: skip
            assert provider.asked[-1]["messages"][-1]["content"][0]["source"]["file_id"] == name


def test_an_edited_message_goes_with_todays_instructions():
    """A history that turns off is sent the instructions of now, not of the place where it turned."""
    with Provider() as provider:
        mine = Chat(provider)
        ask = mine.client.chat.completions.create

        def say(system, tool, *words):
            history = [{"role": "system", "content": system}]
            history += [{"role": "assistant" if at % 2 else "user", "content": word} for at, word in enumerate(words)]  # fmt: skip
            tools = [{"type": "function", "function": {"name": tool, "parameters": {"type": "object"}}}]  # fmt: skip
            ask(model="m", messages=history, tools=tools)
            sent = provider.asked[-1]
            return json.dumps(sent["messages"]), sent["tools"][0]["function"]["name"]

        say("SYSTEM-A", "old", "u1")
        say("SYSTEM-B", "new", "u1", "ok", "u2")
        words, tool = say("SYSTEM-B", "new", "u1", "ok", "u2 edited")
        assert "SYSTEM-B" in words
        assert tool == "new"


def test_an_answer_that_the_client_begins():
    """Anthropic's prefill goes as it is: the answer goes on where the client began."""
    with Provider() as provider:
        history = [{"role": "user", "content": "what"}, {"role": "assistant", "content": "The answer is"}]  # fmt: skip
        Messages(provider).client.messages.create(model="m", max_tokens=9, messages=history)
        assert provider.asked[-1]["messages"] == history


def test_a_client_that_cleans_answers_stays_fast(timed):
    """It rewinds at every turn; that costs what is live, however many came before."""
    with Provider(lambda _: "<think/>yes") as provider:
        mine = Chat(provider)
        took = []
        for turn in range(60):
            mine.history.append({"role": "user", "content": f"turn {turn}"})
            start = time.process_time()
            mine.client.chat.completions.create(model="m", messages=mine.history)
            took.append(time.process_time() - start)
            mine.history.append({"role": "assistant", "content": "yes"})
        early, late = sorted(took[5:20])[7], sorted(took[-15:])[7]
        print(f"\na call at turn 10: {early * 1000:.0f} ms, at turn 50: {late * 1000:.0f} ms")
        assert timed.met(late < 6 * early)


def test_looking_at_a_session_does_not_close_it():
    with Provider() as provider:
        mine = Chat(provider)
        mine.say("one")
        with mine.client.foldline.session as s:
            assert s.report.total
        assert mine.say("two") == "ok"
    with pytest.raises(BadInput, match="no policy 'nonsense'"):
        foldline.wrap(openai.OpenAI(api_key="n"), policy="nonsense")


@pytest.mark.parametrize("on_store_error", ["raise", "pass"])
def test_a_fault_of_our_own_is_no_reason_to_refuse(on_store_error, monkeypatch, caplog):
    def fail(*_, **__):
        raise IndexError

    with Provider() as provider:
        loop = Chat(provider, on_store_error=on_store_error)
        loop.say("hi")
        monkeypatch.setattr("foldline.proxy.conversation.patch_request", fail)
        loop.say("go on")
        assert json.loads(provider.bodies[-1])["messages"][-1]["content"] == "go on"
        monkeypatch.undo()
        loop.say("and on")
    assert "IndexError" in caplog.text
    assert len([one for one in events(loop.client) if isinstance(one, ModelSaid)]) == 3
