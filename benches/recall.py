"""What the tool `recall` brings back: 600 questions about exact values, after their history was folded.

    export FOLDLINE_SHARED=../shared
    just bench recall                   three doors, two windows; about six minutes
    just bench recall --frameworks      two histories in the adapters of five real frameworks; four minutes
    just bench recall --frameworks --histories 0,1,2,3,4,5,6,7       all of them
    just bench recall --short           one history through `wrap` and the gateway

Eight histories of 50,000 tokens (`data/compaction_recall.json.gz`) are lived through request by request, as
their client did, and each is asked 75 questions. Every question starts again from the end of its history:
what was asked before it is not shown, and no call may name a place behind the history. Of earlier questions
only this stays: where an answer to `recall` made a fold of the history necessary, it is folded from there on.

    wrap       `foldline.wrap(OpenAI(), recall=True)`
    gateway    a gateway with `recall` on a port, and a plain `OpenAI()`; every second question of both is streamed
    follower   `foldline.Follower` and `RECALL_TOOL`: all that adapters use
    langchain, … the adapters' hosts of tests/adapters, each in its framework's own environment and runner

The model is a script that a real model could follow. It is a function of the request's body alone: it does
not know the history, the expected answer, or which question comes. If the newest value that is shown for
the question's subject stands there whole and is not called obsolete, it answers with it. Otherwise, if the
tool is offered, it calls `recall` with the span of all handles it sees and the question's subject as `grep`;
and once more, by the hint to go on, or with a pattern that ends where the subject does. After two calls it
gives up. It knows that keys of these histories look like `probe-301-61`, and that `=`, `->` and `:` assign.

Reached means that the client's answer equals the expected one to the letter: stricter than `bench answers`,
which asks whether subject and value stand in one passage. Exits 1 where an answer is not reached within two
calls, a request is refused, a client sees a call of `recall`, or a question could have been helped by another.
"""

import argparse
import asyncio
import gzip
import importlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from answers import chat_of

import foldline
from foldline.core.tokens import count_tokens
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import Provider

ROOT = Path(__file__).parents[1]
MODEL, WINDOWS = "gpt-5", (64_000, 40_000)
MOST_CALLS, THREAD = 2, "one"
CLIENTS = ("wrap", "gateway")
UNKNOWN = "I do not know."
SAMPLE = (0, 5)  # the histories for frameworks: one of each density
HOSTS = {
    "langchain": "LangChainHost",
    "pydantic-ai": "PydanticHost",
    "openai-agents": "OpenAIAgentsHost",
    "adk": "AdkHost",
    "litellm": "LitellmHost",
}
"""The frameworks, and the class in tests/adapters that runs an agent of each."""
_SUBJECT = re.compile(r"[a-z-]+-\d+-\d+")
_HANDLE = re.compile(r"\blog:(\d+)(?:-(\d+))?")
_HINT = re.compile(r"go on: (recall\(.*\))\]")
_CUT = re.compile(r"\[characters [\d,]+-([\d,]+) of ([\d,]+)\] ")

Json = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A question of a history."""

    category: str
    words: str
    expected: str


@dataclass(frozen=True)
class History:
    """A recorded conversation in the form of Chat Completions, its tools, and its questions."""

    name: str
    messages: list[Json]
    tools: list[Json]
    questions: list[Question]


def read_histories(shared: Path) -> list[History]:
    """Read the recorded conversations."""
    with gzip.open(shared / "data/compaction_recall.json.gz") as file:
        cases = json.loads(file.read())
    histories: list[History] = []
    for case in cases:
        messages = [*map(chat_of, case["messages"]), *map(chat_of, case["sharedTail"])]
        for one in messages:
            for call in one.get("tool_calls") or ():
                call["type"] = "function"
        sent = [{key: part for key, part in one.items() if part is not None} for one in messages]
        questions = [
            Question(q["category"], q["question"], q["expected"]) for q in case["questions"]
        ]
        histories.append(History(case["id"], sent, case["tools"], questions))
    return histories


# The scripted model


def answer_question(body: Json) -> str | Json:
    """Answer the newest message of a request, or call `recall`, by what the request shows."""
    entries = list_entries(body)
    newest = max(at for at, one in enumerate(entries) if is_question(one))
    question = "\n".join(list_texts(entries[newest]))
    subject = _SUBJECT.findall(question)[0]
    texts = [
        text for one in (*entries[:newest], *entries[newest + 1 :]) for text in list_texts(one)
    ]
    if answer := find_value(subject, texts):
        return answer
    calls = count_recalls(entries[newest + 1 :])
    span = find_span(texts)
    if calls >= MOST_CALLS or span is None or not is_offered(body):
        return UNKNOWN
    handle, pattern = "log:{}-{}".format(*span), re.escape(subject).replace("\\-", "-")
    arguments = {"handle": handle, "grep": pattern}
    if calls:
        hint = _HINT.search(texts[-1])
        arguments = {"handle": hint[1]} if hint else {**arguments, "grep": rf"{pattern}\b"}
    function = {"name": "recall", "arguments": json.dumps(arguments)}
    call = {"id": f"call_recall_{calls}", "type": "function", "function": function}
    return {"content": None, "tool_calls": [call]}


def find_value(subject: str, texts: Sequence[str]) -> str:
    """Find the newest value that texts assign to a subject and do not call obsolete; "" if none."""
    assigned = re.compile(rf"(?<![\w-]){re.escape(subject)}(?:=|->|:)([^\s;…]+)")
    value = ""
    for line in "\n".join(texts).split("\n"):
        for passage in cut_end(line).split(";"):
            found = assigned.search(passage)
            if found and not re.search("obsolete|superseded", passage, re.IGNORECASE):
                value = found[1].rstrip(".")
    return value


def cut_end(line: str) -> str:
    """Drop the last passage of a line that is shown in part: it may be cut in its value."""
    shown = _CUT.search(line)
    return line.rpartition(";")[0] if shown and shown[1] != shown[2] else line


def find_span(texts: Sequence[str]) -> tuple[int, int] | None:
    """Find the first and the last place that any handle names."""
    found = [(int(lo), int(hi or lo)) for text in texts for lo, hi in _HANDLE.findall(text)]
    return (min(lo for lo, _ in found), max(hi for _, hi in found)) if found else None


def list_entries(body: Json) -> list[Json]:
    """List the messages of a request, whichever dialect it has."""
    return next(body[name] for name in ("messages", "input", "contents") if name in body)


def list_texts(part: Any) -> list[str]:
    """List all texts in a message."""
    if isinstance(part, str):
        return [part]
    inside = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [text for one in inside for text in list_texts(one)]


def is_question(entry: Json) -> bool:
    """Whether a user said this; Gemini also has results under that role."""
    return entry.get("role") == "user" and not any(
        "functionResponse" in p for p in entry.get("parts", ())
    )


def count_recalls(part: Any) -> int:
    """Count the calls of `recall` in messages."""
    if isinstance(part, list):
        return sum(map(count_recalls, part))
    if not isinstance(part, dict):
        return 0
    is_call = part.get("name") == "recall" and ("arguments" in part or "args" in part)
    return is_call + sum(map(count_recalls, part.values()))


def is_offered(body: Json) -> bool:
    """Whether a request has the tool `recall`."""
    return '"recall"' in json.dumps(body.get("tools", []))


# What is measured


@dataclass
class Outcome:
    """What became of the questions of one door."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By category and number of calls; -1 is not reached."""
    faults: list[str] = field(default_factory=list)
    largest: int = 0
    refused: int = 0
    seen: int = 0
    helped: int = 0
    seconds: float = 0.0

    def add(self, other: "Outcome") -> None:
        """Add what became of another history."""
        self.counts += other.counts
        self.counts.update(dict.fromkeys(other.counts, 0))
        self.faults += other.faults
        self.largest = max(self.largest, other.largest)
        self.refused += other.refused
        self.seen += other.seen
        self.helped += other.helped
        self.seconds += other.seconds

    @property
    def is_well(self) -> bool:
        """Whether all is as it must be."""
        return not (self.faults or self.refused or self.seen or self.helped)


class Watch:
    """Notes of one history: what was sent for each question, and what came of it."""

    def __init__(self, history: History) -> None:
        self.history, self.outcome = history, Outcome()
        self._bodies: list[Json] = []
        self._end = -1
        self._begun = time.perf_counter()

    async def begin_questions(self, path: str) -> None:
        """Note the last place of the history: that of the only log in a store."""
        store = store_at(path)
        try:
            (only,) = await store.sessions("local")
            self._end = (await store.head(Name("local", only.session))).seq
        finally:
            await store.close()

    def answer(self, body: Json) -> str | Json:
        """Let the scripted model answer, and note what it was shown."""
        self._bodies.append(body)
        return answer_question(body)

    def judge(self, question: Question, said: str, seen: str = "") -> None:
        """Note the client's answer to a question; `seen` is all that the client was sent."""
        calls = len(self._bodies) - 1
        is_reached = said == question.expected and calls <= MOST_CALLS
        self.outcome.counts[question.category, calls if is_reached else -1] += 1
        self.outcome.seen += "recall" in seen
        texts = list_texts([list_entries(one) for one in self._bodies])
        _, last = find_span(texts) or (0, 0)
        others = {one.words for one in self.history.questions} - {question.words}
        is_told = any(one in text for text in texts for one in others)
        self.outcome.helped += last > self._end or is_told
        if not is_reached:
            self.outcome.faults.append(
                f"{self.history.name}: {question.words} {said!r}, not {question.expected!r}; {calls} calls"
            )
        self._bodies = []

    def end(self, sizes: Sequence[int], refused: int) -> Outcome:
        """Return what became of the history."""
        self.outcome.largest, self.outcome.refused = max(sizes), refused
        self.outcome.seconds = time.perf_counter() - self._begun
        return self.outcome

    def end_at(self, provider: Provider) -> Outcome:
        """Return what became of a history that went to a provider."""
        sizes = [count_tokens(body.decode()) for body in provider.bodies]
        return self.end(sizes, sum(status != 200 for status in provider.statuses))


# The doors


@contextmanager
def open_client(door: str, provider: Provider, path: str) -> Iterator[Any]:
    """Open a client of OpenAI: wrapped, or plain and of a gateway."""
    from openai import OpenAI  # noqa: PLC0415 - not every framework's environment has it

    sys.path.append(str(ROOT / "tests/support"))
    from gateway_thread import Served  # noqa: PLC0415 - nor this

    window = provider.window
    if door == "wrap":
        client = OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
        with foldline.wrap(client, store=path, window=window, recall=True) as wrapped:
            yield wrapped
    else:
        with (
            Served(provider.url, store=path, window=window, recall=True) as gateway,
            OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client,
        ):
            yield client


def run_client(door: str, history: History, window: int) -> Outcome:
    """Live through a history by OpenAI's SDK, and ask its questions."""
    watch = Watch(history)
    tools = [write_chat_tool(one) for one in history.tools]
    with (
        TemporaryDirectory() as folder,
        Provider(window=window) as provider,
        open_client(door, provider, path := f"{folder}/logs.db") as client,
    ):

        def ask(messages: list[Json], **more: Any) -> Any:
            # Past the SDK's own reading of each message, which takes longer than all else.
            body = {"messages": messages, "tools": tools}
            return client.chat.completions.create(model=MODEL, messages=[], extra_body=body, **more)

        for at, message in enumerate(history.messages):
            if message["role"] == "assistant":
                provider.script = lambda _, message=message: message
                ask(history.messages[:at])
        asyncio.run(watch.begin_questions(path))
        provider.script = watch.answer
        for number, question in enumerate(history.questions):
            asked = [*history.messages, {"role": "user", "content": question.words}]
            if number % 2:
                chunks = [*ask(asked, stream=True)]
                words = [one.choices[0].delta.content or "" for one in chunks if one.choices]
                said, seen = "".join(words), "".join(one.to_json() for one in chunks)
            else:
                answer = ask(asked)
                said, seen = answer.choices[0].message.content or "", answer.to_json()
            watch.judge(question, said.strip(), seen)
        return watch.end_at(provider)


def write_chat_tool(tool: Json) -> Json:
    """Write a tool in the form of Chat Completions."""
    return {"type": "function", "function": {key: tool[key] for key in tool if key != "type"}}


def run_follower(history: History, window: int) -> Outcome:
    """Live through a history by a follower, which is what adapters do."""
    with TemporaryDirectory() as folder:
        path = f"{folder}/logs.db"
        follower = foldline.Follower(store=path, window=window)
        try:
            return ask_follower(follower, Watch(history), window, path)
        finally:
            follower.close()


def ask_follower(follower: foldline.Follower, watch: Watch, window: int, path: str) -> Outcome:
    """Plan every request of a history and of its questions, and run the tool."""
    history, sizes = watch.history, list[int]()
    tools = [*map(write_chat_tool, history.tools), write_chat_tool(foldline.RECALL_TOOL)]

    def plan(messages: list[Json]) -> Json:
        given = {"model": MODEL, "messages": messages, "tools": tools}
        planned = follower.plan(given, session=THREAD)
        sizes.append(count_tokens(json.dumps(planned.request)))
        follower.record_usage(planned, input=sizes[-1], output=1)
        return planned.request

    for at, message in enumerate(history.messages):
        if message["role"] == "assistant":
            plan(history.messages[:at])
    asyncio.run(watch.begin_questions(path))
    for question in history.questions:
        asked = [*history.messages, {"role": "user", "content": question.words}]
        while not isinstance(said := watch.answer(plan(asked)), str):
            (call,) = said["tool_calls"]
            given = json.loads(call["function"]["arguments"])
            result = follower.answer_recall(given, session=THREAD)
            asked.append({"role": "assistant", **said})
            asked.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        watch.judge(question, said)
    return watch.end(sizes, sum(size > window for size in sizes))


# The frameworks: this file is run again in the environment of each


def list_turns(history: History) -> list[tuple[str, list[Json]]]:
    """List what the user says and what the model answers to it; a turn without a user says "Go on."."""
    turns: list[tuple[str, list[Json]]] = []
    is_over = False
    for one in history.messages:
        if one["role"] == "user":
            turns.append((one["content"], []))
        elif one["role"] == "assistant":
            if is_over:
                turns.append(("Go on.", []))
            turns[-1][1].append(one)
        is_over = one["role"] == "assistant" and not one.get("tool_calls")
    return turns


@dataclass(frozen=True)
class Fork:
    """How a framework's own history of a thread is read, and put back as it was."""

    read: Callable[[Any], Awaitable[Any]]
    put: Callable[[Any, Any], Awaitable[None]]


def make_fork(framework: str, module: Any) -> Fork:
    """Make the fork of a framework, by its own interface."""
    if framework == "langchain":
        config = {"configurable": {"thread_id": THREAD}}

        async def read(host: Any) -> Any:
            return [*host.agent.get_state(config).values["messages"]]

        async def put(host: Any, kept: Any) -> None:
            from langchain_core.messages import RemoveMessage  # noqa: PLC0415

            now = host.agent.get_state(config).values["messages"]
            gone = [RemoveMessage(id=one.id) for one in now[len(kept) :]]
            host.agent.update_state(config, {"messages": gone}, as_node="model")

    elif framework == "openai-agents":

        async def read(host: Any) -> Any:
            return await module.SQLiteSession(THREAD, host.file).get_items()

        async def put(host: Any, kept: Any) -> None:
            session = module.SQLiteSession(THREAD, host.file)
            await session.clear_session()
            await session.add_items(kept)

    elif framework == "adk":

        async def read(host: Any) -> Any:
            return len(host.sessions.sessions["builds"]["me"][THREAD].events)

        async def put(host: Any, kept: Any) -> None:
            del host.sessions.sessions["builds"]["me"][THREAD].events[kept:]

    else:  # the program keeps the history

        async def read(host: Any) -> Any:
            return host.kept[THREAD][:]

        async def put(host: Any, kept: Any) -> None:
            host.kept[THREAD] = kept[:]

    return Fork(read, put)


async def run_host(framework: str, history: History, window: int) -> Outcome:
    """Live through a history in an agent of a framework, and ask its questions."""
    results = {
        one["tool_call_id"]: one["content"] for one in history.messages if one["role"] == "tool"
    }
    calls = [call for one in history.messages for call in one.get("tool_calls") or ()]
    outputs = {
        json.loads(one["function"]["arguments"])["probe"]: results[one["id"]] for one in calls
    }

    def database_query(project: int, probe: str) -> str:  # noqa: ARG001 - the recorded tool has it
        """Read an authoritative project probe without modifying state."""
        return outputs[probe]

    name = framework.replace("-", "_")
    module = importlib.import_module(f"{name}_host")
    module.read_log = database_query  # hosts take their tool by this name when they are made
    module.READ = {key: history.tools[0][key] for key in ("name", "description", "parameters")}
    kind = getattr(module, HOSTS[framework])
    fork, watch = make_fork(framework, module), Watch(history)
    with TemporaryDirectory() as folder, Provider(window=window) as provider:
        path = f"{folder}/logs.db"
        host = kind(provider.url, {"store": path, "window": window})
        for words, answers in list_turns(history):
            left = iter(answers)
            provider.script = lambda _, left=left: next(left)
            await host.ask(THREAD, words)
        await watch.begin_questions(path)
        provider.script = watch.answer
        kept = await fork.read(host)
        for question in history.questions:
            said = await host.ask(THREAD, question.words)
            watch.judge(question, said)
            await fork.put(host, kept)
        await host.close()
        return watch.end_at(provider)


def run_framework(framework: str, numbers: Sequence[int], window: int) -> Iterator[Outcome]:
    """Run this file in a framework's environment, and read what it prints."""
    sys.path.insert(0, str(ROOT / "tests/clients"))
    agents = importlib.import_module("agents")
    agents.install(framework)
    python, which = agents.RIG / framework / "bin/python", ",".join(map(str, numbers))
    line = [python, __file__, "--inside", framework, "--windows", str(window), "--histories", which]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - this file
        assert process.stdout is not None
        for printed in process.stdout:
            if printed.startswith('{"counts"'):
                read = json.loads(printed)
                read["counts"] = Counter(
                    {(kind, calls): many for kind, calls, many in read["counts"]}
                )
                yield Outcome(**read)
    if process.returncode:
        yield Outcome(faults=[f"{framework} ended with {process.returncode}"])


async def run_inside(framework: str, histories: Sequence[History], window: int) -> int:
    """What runs in a framework's environment: prints a line for each history."""
    sys.path.insert(0, str(ROOT / "tests/adapters"))
    for history in histories:
        found = await run_host(framework, history, window)
        counts = [(kind, calls, many) for (kind, calls), many in found.counts.items()]
        print(json.dumps({**vars(found), "counts": counts}), flush=True)
    return 0


def print_outcome(door: str, window: int, found: Outcome) -> None:
    """Print the table of one door."""
    print(f"\n{door}, window {window:,}")
    print(f"  {'':24}{'0 calls':>9}{'1 call':>9}{'2 calls':>9}{'not reached':>13}")
    kinds = sorted({kind for kind, _ in found.counts})
    for kind in (*kinds, "all"):
        mine = [
            (calls, many) for (one, calls), many in found.counts.items() if kind in (one, "all")
        ]
        some = [sum(many for calls, many in mine if calls == wanted) for wanted in (0, 1, 2, -1)]
        print(f"  {kind:24}{some[0]:9}{some[1]:9}{some[2]:9}{some[3]:13}")
    saw = (
        f"clients saw {found.seen} calls; " if door in CLIENTS else ""
    )  # programs with an adapter run them
    print(
        f"  largest request {found.largest:,} tokens, {found.refused} refused; {saw}"
        f"helped by another question {found.helped}; {found.seconds:.0f} s"
    )
    for fault in found.faults[:10]:
        print(f"  MISSED {fault}")
    sys.stdout.flush()


def main() -> int:
    """Print the tables; 1 where something is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="one history through wrap and gateway")
    parser.add_argument("--frameworks", action="store_true", help="only the adapters' frameworks")
    parser.add_argument("--doors", nargs="+", default=(), help="only these doors or frameworks")
    parser.add_argument("--windows", type=int, nargs="+", default=())
    parser.add_argument("--histories", default="", help="only these, by number: 0,1,7")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not os.environ.get("FOLDLINE_SHARED"):
        print("FOLDLINE_SHARED is not set: nothing was measured")
        return 0
    histories = read_histories(Path(os.environ["FOLDLINE_SHARED"]))
    every = SAMPLE if args.frameworks else SAMPLE[:1] if args.short else range(len(histories))
    numbers = [*map(int, args.histories.split(","))] if args.histories else [*every]
    chosen = [histories[number] for number in numbers]
    windows = args.windows or (WINDOWS[:1] if args.short or args.frameworks else WINDOWS)
    if args.inside:
        return asyncio.run(run_inside(args.inside, chosen, windows[0]))
    usual = HOSTS if args.frameworks else CLIENTS if args.short else (*CLIENTS, "follower")
    is_well = True
    for window in windows:
        for door in args.doors or usual:
            found = Outcome()
            if door in HOSTS:
                each = run_framework(door, numbers, window)
            elif door == "follower":
                each = (run_follower(one, window) for one in chosen)
            else:
                each = (run_client(door, one, window) for one in chosen)
            for one in each:
                found.add(one)
            asked = sum(found.counts.values())
            if asked < sum(len(one.questions) for one in chosen):
                found.faults.append(f"only {asked} questions were asked")
            print_outcome(door, window, found)
            is_well &= found.is_well
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
