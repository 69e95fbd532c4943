"""What can still be answered: planted facts in view and found by one search, beside plain truncation.

    FOLDLINE_SHARED=../shared just bench answers        all of it, about ten minutes on one core
    just bench answers --short                          what CI runs
    just peers && just bench answers --peers            other libraries, on the same conversations

No model is asked. A fact counts as in view only where its subject and its value stand in one line or
sentence; a bag of values is no memory. `planted` conversations (`foldline.lab.planted`, prose and code) are
those that Foldline was tuned on, with other seeds; `held out` is a generator that somebody else wrote, in
FOLDLINE_SHARED. Windows times histories: a history of 4 has four times the tokens of its window. No price is
known, as for a local model, so nothing but the window asks for a fold.

    full       the newest messages that fit the whole window
    equal      the newest messages that take as many tokens as `steady` did
    last 20    the newest 20 messages, as many of them as fit
    summary    everything older than half a window is replaced by a summary that keeps 60 % of the facts
    steady     Foldline
    search     the first five messages that a search by the question's own words finds; facts that two
               messages say together need two searches, so the target is lower for `planted`

Also printed: tokens of the last request; the share of all sent tokens that a cache could serve, because they
stood at the same place in the request before; and dollars at $3 per million tokens, reads at a tenth and writes
at 1.25. Intervals are bootstrapped over conversations. Exits 1 below a target.
"""

import argparse
import gzip
import importlib.util
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rivals import ask_peers
from sessions import events_of

import foldline
from foldline.core.budget import limits
from foldline.core.log import Instructed, ModelSaid, UserSaid
from foldline.core.parts import Text
from foldline.core.plan import Facts, Ready
from foldline.core.policy import STEADY
from foldline.core.tokens import MESSAGE, count_tokens
from foldline.lab.comparison import Interval, estimate_interval
from foldline.lab.kept_names import words_of
from foldline.lab.planted import PlantedFact, is_in_view, is_stale_alone, make_conversation
from foldline.lab.policy_run import Planned

SYSTEM = "You are an operations assistant. Answer from the conversation."
RESERVE, SHARE = 64, 0.94  # of the window that truncation fills
SEEDS = 1_000  # the first seed of what is reported; lower ones were tuned on
KEPT = 0.6  # of the facts, by a summary
READ, WRITE, DOLLARS = 0.1, 1.25, 3e-6
PEERS = (2_048, 8_192)  # windows at which other libraries are asked
ARMS = ("full", "equal", "last 20", "summary", "steady")

Message = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A question: whether a text holds its answer, and whether it holds only the old one."""

    speaker: str
    kind: str
    words: str
    is_held: Callable[[str], bool]
    is_stale: Callable[[str], bool] = lambda _: False


@dataclass(frozen=True)
class Talk:
    """A conversation and the questions about it."""

    messages: list[Message]
    questions: list[Asked]


def planted(seed: int, messages: int, flavour: Any) -> Talk:
    """One of ours."""
    said, facts = make_conversation(
        SEEDS + seed, max(messages, 14), flavour, facts=min(max(messages // 4, 8), 40)
    )
    return Talk(said, [ask_planted(one) for one in facts if one.kind != "never"])


def ask_planted(fact: PlantedFact) -> Asked:
    """The question about one of our facts."""
    return Asked(
        fact.speaker,
        fact.kind,
        fact.question,
        lambda text: is_in_view(fact, text),
        lambda text: is_stale_alone(fact, text),
    )


def held_out(shared: Path) -> Callable[[int, int], Talk]:
    """The generator of somebody else."""
    spec = importlib.util.spec_from_file_location("gen", shared / "tools/quality/gen.py")
    assert spec is not None
    assert spec.loader is not None
    gen = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gen)

    def make(seed: int, messages: int) -> Talk:
        said, asked = gen.make(SEEDS + seed, max(messages * 2 // 5, 16))
        return Talk(said, [ask(one) for one in asked])

    def ask(one: dict[str, Any]) -> Asked:
        subject = next(word for word in gen.SERV if word in one["q"].lower())

        def is_held(text: str) -> bool:
            lines = re.split(r"\n|(?<=[.!?]) ", text)
            return any(one["a"] in line and subject in line.lower() for line in lines)

        speaker = "result" if one["kind"] == "tool" else one["kind"]
        return Asked(speaker, "single", one["q"], is_held)

    return make


def size_of(message: Message) -> int:
    """A message's tokens, by the counter that `steady` uses."""
    calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
    return count_tokens((message.get("content") or "") + calls) + MESSAGE


def text_of(messages: Sequence[Message]) -> str:
    """What a model would read."""
    return "\n".join(one.get("content") or "" for one in messages)


def truncate(messages: Sequence[Message], budget: int) -> list[Message]:
    """The newest messages within a budget, from a user's message on."""
    kept: list[Message] = []
    for one in reversed(messages):
        budget -= size_of(one)
        if budget < 0:
            break
        kept.insert(0, one)
    while kept and kept[0]["role"] != "user":
        kept.pop(0)
    return kept


@dataclass
class Sent:
    """What one arm sent over a conversation."""

    shown: str = ""
    tokens: int = 0
    total: int = 0
    cached: int = 0
    folds: int = 0

    @property
    def cacheable(self) -> float:
        """The share of all tokens that stood at the same place in the request before."""
        return self.cached / self.total if self.total else 0.0

    @property
    def dollars(self) -> float:
        """What all requests cost together."""
        return (READ * self.cached + WRITE * (self.total - self.cached)) * DOLLARS

    def add_request(self, before: Sequence[Any], now: Sequence[tuple[Any, int]]) -> list[Any]:
        """Count a request of pieces, each with its tokens; return the pieces."""
        self.tokens = sum(size for _, size in now)
        self.total += self.tokens
        for old, (piece, size) in zip(before, now, strict=False):
            if old != piece:
                break
            self.cached += size
        return [piece for piece, _ in now]


def send_by_steady(messages: Sequence[Message], window: int) -> Sent:
    """Run a conversation through Foldline, one request before every answer."""
    talk = Planned(Facts(limits(window, RESERVE), STEADY))
    talk.append(Instructed((Text(SYSTEM),)))
    sent, before = Sent(), []
    every = [*events_of(messages), UserSaid((Text("And now?"),))]
    for event, following in zip(every, (*every[1:], None), strict=True):
        talk.add(event)
        if not isinstance(following, ModelSaid | None):
            continue
        made = talk.plan()
        assert isinstance(made, Ready), made
        talk.ask(made)
        pieces = [((i.seq, i.state, i.tokens), i.tokens) for i in made.request.items]
        before = sent.add_request(before, pieces)
        sent.shown = "\n".join(words_of(item.parts) for item in made.request.items)
        sent.tokens = made.report.total
    sent.folds = len(talk.folds())
    return sent


def send_by_truncation(
    messages: Sequence[Message], cut: Callable[[Sequence[Message]], list[Message]]
) -> Sent:
    """Cut the history anew before every answer."""
    sent, before = Sent(), []
    calls = [at for at, one in enumerate(messages) if one["role"] == "assistant"]
    for at in (*calls[:: max(len(calls) // 200, 1)], len(messages)):
        shown = cut(messages[:at])
        before = sent.add_request(before, [(id(one), size_of(one)) for one in shown])
        sent.shown = text_of(shown)
    return sent


def summarise(talk: Talk, window: int, random: Random) -> str:
    """A summary of what is older than half a window: each fact is in it by the stated chance."""
    newest = truncate(talk.messages, int(window * SHARE / 2))
    older = talk.messages[: len(talk.messages) - len(newest)]
    lines = [line for one in older for line in (one.get("content") or "").split("\n")]
    kept: list[str] = []
    for one in talk.questions:
        if random.random() < KEPT:
            kept += [line for line in lines if one.is_held(line)][:1]
    return "\n".join((*kept, text_of(newest)))


def found_by_search(talk: Talk) -> list[bool]:
    """Whether the first five hits for each question's own words hold its answer."""
    with foldline.open(":memory:", model="local", system=SYSTEM, window=8_192) as session:
        for one in talk.messages:
            session.add(one)
        return [
            one.is_held("\n".join(hit.words for hit in session.history.search(one.words, limit=5)))
            for one in talk.questions
        ]


@dataclass
class Row:
    """The figures of one window and history: a value per conversation."""

    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def interval(self, name: str) -> Interval:
        """The mean of a figure over conversations."""
        return estimate_interval(self.values[name] or [1.0])

    def add(self, talk: Talk, window: int, seed: int, *, search: bool) -> None:
        """Measure one conversation."""
        ours = send_by_steady(talk.messages, window)
        whole = int(window * SHARE) - RESERVE
        sent = {
            "steady": ours,
            "full": send_by_truncation(talk.messages, lambda past: truncate(past, whole)),
        }
        texts = {
            "steady": ours.shown,
            "full": sent["full"].shown,
            "equal": text_of(truncate(talk.messages, ours.tokens - count_tokens(SYSTEM))),
            "last 20": text_of(truncate(talk.messages[-20:], whole)),
            "summary": summarise(talk, window, Random(seed)),
        }
        for name, text in texts.items():
            self.put(name, [one.is_held(text) for one in talk.questions])
        self.put("stale", [one.is_stale(ours.shown) for one in talk.questions])
        for kind in ("user", "assistant", "result"):
            mine = [one for one in talk.questions if one.speaker == kind]
            self.put(kind, [one.is_held(ours.shown) for one in mine])
        corrected = [one for one in talk.questions if one.kind == "corrected"]
        self.put("corrected", [one.is_held(ours.shown) for one in corrected])
        if search:
            self.put("search", found_by_search(talk))
        for name, one in sent.items():
            self.values[f"{name} tokens"].append(one.tokens)
            self.values[f"{name} cacheable"].append(one.cacheable)
            self.values[f"{name} dollars"].append(one.dollars)
        self.values["folds"].append(ours.folds)

    def put(self, name: str, held: Sequence[bool]) -> None:
        """Note a share, if there is anything to share."""
        if held:
            self.values[name].append(sum(held) / len(held))


def targets(row: Row, *, window: int, history: float, ours: bool) -> Iterator[tuple[str, bool]]:
    """What must hold, and whether it does; `ours` also asks for what two messages say together."""
    steady, full, equal = (row.interval(name).mean for name in ("steady", "full", "equal"))
    if window <= 32_768:
        yield f"steady {steady:.2f} at least full {full:.2f}", steady >= full
    if history >= 4:
        yield f"steady {steady:.2f} at least 1.5 x equal {equal:.2f}", steady >= 1.5 * equal
    if (window, history) == (8_192, 4):
        user = row.interval("user").mean
        yield f"user {user:.3f} at least .95", user >= 0.95
    if window >= 8_192 and history <= 4:
        newest = row.interval("corrected").mean
        yield f"corrected {newest:.3f} at least .99", newest >= 0.99
    stale, most = row.interval("stale").mean, 0.002 if window >= 8_192 else 0.02
    yield f"stale alone {stale:.4f} at most {most}", stale <= most
    if row.values["search"]:
        found, least = row.interval("search").mean, 0.92 if ours else 0.98
        yield f"search {found:.3f} at least {least}", found >= least


def compare_peers(makers: dict[str, Callable[[int, int], Talk]], many: int) -> None:
    """Print what other libraries have in view at the end of the same conversations."""
    talks: dict[str, Talk] = {}
    asked: list[dict[str, Any]] = []
    for name, make in makers.items():
        size = measure_message(make)
        for window in PEERS:
            for seed in range(many):
                key = f"{name}, {window:,} x 4/{seed}"
                talks[key] = make(seed, int(window * 4 / size))
                one = {"talk": key, "window": window, "system": SYSTEM}
                asked.append({**one, "messages": talks[key].messages})
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    refused: dict[str, int] = defaultdict(int)
    for row in ask_peers(asked):
        held = [one.is_held(row.get("text", "")) for one in talks[row["talk"]].questions]
        shares[row["peer"]][row["talk"].rpartition("/")[0]].append(sum(held) / len(held))
        refused[row["peer"]] += not row.get("text")
    print(f"{'':28} {'  '.join(next(iter(shares.values()), ()))}  not sent, too large")
    for peer, found in shares.items():
        means = "  ".join(f"{sum(one) / len(one):{len(name)}.2f}" for name, one in found.items())
        print(f"{peer:28} {means}  {refused[peer]} of {len(talks)}")


def measure_message(make: Callable[[int, int], Talk]) -> float:
    """The mean tokens of a generator's messages."""
    messages = make(0, 400).messages
    return sum(map(size_of, messages)) / len(messages)


def measure_recall(shared: Path) -> list[tuple[str, bool]]:
    """The answers of `compaction_recall` in sight, at no more tokens than OpenAI's compaction leaves."""
    with gzip.open(shared / "data/compaction_recall.json.gz") as file:
        cases = json.loads(file.read())
    shares: list[float] = []
    sizes: list[int] = []
    for case in cases:
        messages = [*map(chat_of, case["messages"]), *map(chat_of, case["sharedTail"])]
        sent = send_by_steady(messages, 64_000)
        sizes.append(sent.tokens)
        for one in case["questions"]:
            subject = re.findall(r"[a-z-]+-\d+-\d+", one["question"])[0]
            wanted = [part.split("=")[-1] for part in one["expected"].split("|")]
            lines = [line for line in re.split(r"[\n;]", sent.shown) if subject in line]
            shares.append(any(all(part in line for part in wanted) for line in lines))
    share, most = sum(shares) / len(shares), max(sizes)
    print(
        f"\ncompaction_recall, window 64,000: {share:.1%} of {len(shares)} in sight, {most:,} tokens"
    )
    return [
        (
            f"compaction_recall {share:.3f} at least .78 within 42,700",
            share >= 0.78 and most <= 42_700,
        )
    ]


def chat_of(message: dict[str, Any]) -> Message:
    """A recorded message in the form of Chat Completions."""
    content = message["content"]
    parts = [] if isinstance(content, str) else content
    text = (
        content
        if isinstance(content, str)
        else "\n".join(p["text"] for p in parts if p["type"] == "text")
    )
    match message["role"]:
        case "toolResult":
            return {"role": "tool", "tool_call_id": message["toolCallId"], "content": text}
        case "assistant":
            calls = [
                {
                    "id": p["id"],
                    "function": {"name": p["name"], "arguments": json.dumps(p["arguments"])},
                }
                for p in parts
                if p["type"] == "toolCall"
            ]
            return {"role": "assistant", "content": text, "tool_calls": calls or None}
        case role:
            return {"role": role, "content": text}


def main() -> int:
    """Print the tables; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small windows, few conversations")
    parser.add_argument("--conversations", type=int, default=0, help="of each window and history")
    parser.add_argument("--peers", action="store_true", help="only other libraries (`just peers`)")
    args = parser.parse_args()
    shared = Path(os.environ["FOLDLINE_SHARED"]) if os.environ.get("FOLDLINE_SHARED") else None
    windows = (2_048, 4_096) if args.short else (2_048, 4_096, 8_192, 32_768, 131_072)
    histories = (1.3, 4) if args.short else (1.3, 4, 20)
    makers: dict[str, Callable[[int, int], Talk]] = {
        "planted, prose": lambda seed, n: planted(seed, n, "prose"),
        "planted, code": lambda seed, n: planted(seed, n, "code"),
    }
    if shared:
        makers["held out"] = held_out(shared)
    if args.peers:
        compare_peers(makers, args.conversations or 4)
        return 0
    missed: list[str] = []
    for name, make in makers.items():
        each = measure_message(make)
        print(f"\n{name}: in view, with 95 % intervals over conversations")
        for window in windows:
            for history in histories:
                if window * history > 700_000:
                    continue
                row = Row()
                many = args.conversations or max(min(int(400_000 / (window * history)), 20), 2)
                many = min(many, 4) if args.short else many
                for seed in range(many):
                    talk = make(seed, int(window * history / each))
                    row.add(talk, window, seed, search=window * history < 70_000)
                shares = "  ".join(f"{arm} {row.interval(arm)}" for arm in ARMS)
                print(f"  {window:7,} x {history:<4} {many:2} talks  {shares}")
                print(
                    f"      steady: user {row.interval('user').mean:.2f}, assistant "
                    f"{row.interval('assistant').mean:.2f}, results {row.interval('result').mean:.2f}, corrected "
                    f"{row.interval('corrected').mean:.2f}, stale alone {row.interval('stale').mean:.3f}"
                    + (
                        f"; found by one search {row.interval('search').mean:.3f}"
                        if row.values["search"]
                        else ""
                    )
                )
                print(
                    f"      tokens {row.interval('steady tokens').mean:,.0f} beside "
                    f"{row.interval('full tokens').mean:,.0f}; cacheable {row.interval('steady cacheable').mean:.0%} "
                    f"beside {row.interval('full cacheable').mean:.0%}; dollars "
                    f"{row.interval('steady dollars').mean:.3f}; folds {row.interval('folds').mean:.1f}",
                    flush=True,
                )
                for what, held in targets(
                    row, window=window, history=history, ours=name != "held out"
                ):
                    if not held:
                        missed.append(f"{name}, {window:,} x {history}: {what}")
    if shared and not args.short:
        missed += [what for what, held in measure_recall(shared) if not held]
    for one in missed:
        print(f"MISSED {one}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
