"""Verify a narrative line by line against the log.

Nothing is corrected here: the faults are named, the model is asked once more, and then the handoff
goes without a narrative.

A line is proven if the events it cites are in the span, and every path, number, name and quotation
in it occurs in them. Beyond that it depends on what the line claims:

    what the user wants, allows, said   only the user's own words, from the messages it cites
    what must, should or never be       only words of the user or the assistant, which it cites
    decisions, open questions           mostly words of the user or the assistant
    anything                            nothing that a tool's output commands or pretends

Such claims are recognised in eleven languages, by the word tables of `handoff`. No rule catches a
paraphrase without any of these words: it stands as a cited line of a record, and not under the
user's heading.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

from foldline.core.edits.fold.ask import (
    DECISIONS,
    FORM,
    GOALS,
    OPEN,
    SECTIONS,
    Prompt,
    build_repair_prompt,
)
from foldline.core.edits.fold.injection_words import (
    LAW,
    NOT,
    UNSEEN,
    USER,
    WordIndex,
    choose_nearest_passage,
    has_telling_words,
    iterate_injected_orders,
    iterate_word_runs,
    join_words,
    normalise_text,
)
from foldline.core.log import Event, Logged, ModelSaid, Stop, ToolReturned, UserSaid, by_user
from foldline.core.names import count_names
from foldline.core.parts import Line, calls_of, replace_surrogates, spoken_text_of
from foldline.core.tokens import count_tokens

_CITED = r"[\[【［]((?:events?|log:|[\d,，、;\s–-]){1,200})[\]】］]"  # noqa: RUF001
_LINE = re.compile(rf"^[-*•] +(?P<text>\S.*?) *{_CITED}[.。]?$")
_INSIDE = re.compile(rf"(?<=\s){_CITED}")
_SEQ = re.compile(r"\d{1,18}")
_NOTHING = re.compile(
    r"[-*•]? *\(?(?:none|nothing|n/a|keine|nichts|无|なし)\)?[.。]?", re.IGNORECASE
)
_REFUSAL = re.compile(
    r"\s*(?:i'?m sorry|i am sorry|sorry,|i can(?:no|['’])t|i am unable|i['’]m unable|as an ai"  # noqa: RUF001
    r"|i won['’]?t|unfortunately, i|es tut mir leid|ich kann (?:das|dabei|ihnen|dir) nicht"  # noqa: RUF001
    r"|抱歉|对不起|我无法|申し訳|lo siento|je suis désolé|извините|к сожалению)",
    re.IGNORECASE,
)
_SCRIPTS = re.compile(r"[a-z](?=\w*[Ѐ-ӿͰ-Ͽ])|[Ѐ-ӿͰ-Ͽ](?=\w*[a-z])", re.IGNORECASE)
_QUOTE = re.compile(r"[\"“„«`「『]([^\"“”„»`「」『』\n]{2,300})[\"”“»`」』]")
_NUMBER = re.compile(r"(?<![\w.,])\d[\d.,]*\d(?![\d])|(?<![\w.,])\d(?![\w])")


@dataclass(frozen=True, slots=True)
class Accepted:
    """Every line is proven."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """Ask once more, with this prompt."""

    prompt: Prompt
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The handoff goes without a narrative, because of these faults."""

    faults: tuple[str, ...]


Verdict: TypeAlias = Accepted | Repair | Rejected


def verify_answer(
    prompt: Prompt,
    answer: str,
    events: Iterable[Logged],
    *,
    stop: Stop = "done",
    again: bool = False,
) -> Verdict:
    """Judge an answer; `again` says that it is the second one."""
    answer = replace_surrogates(answer)
    faults = _list_answer_faults(prompt, answer, stop)
    lines: list[Line] = []
    if not faults:
        lines, faults = parse_narrative(answer)
    if not faults:
        lo, hi = prompt.range.lo, prompt.range.hi
        told = Told({seq: one for seq, one in events if lo <= seq <= (seq if hi is None else hi)})
        faults = [fault for line in lines for fault in list_line_faults(line, told)]
    if not faults:
        return Accepted(tuple(lines))
    return (
        Rejected(tuple(faults))
        if again
        else Repair(build_repair_prompt(prompt, faults), tuple(faults))
    )


def parse_narrative(answer: str) -> tuple[list[Line], list[str]]:
    """Parse the lines of an answer; also return the faults of what is no such line."""
    lines: list[Line] = []
    faults: list[str] = []
    section = ""
    for raw in answer.strip().split("\n"):
        text = raw.strip()
        title = text.strip("#*: ")
        heading = next((name for name in SECTIONS if name.lower() == title.lower()), "")
        if heading or text.startswith("#"):
            section = heading
            faults += [] if section else [f"{title[:60]!r} is none of the headings"]
        elif UNSEEN.search(text):
            faults.append(f"{text[:60]!r} has characters in it that cannot be seen")
        elif found := _LINE.match(text):
            cited = " ".join((*_INSIDE.findall(found["text"]), found[2]))
            if not section:
                faults.append(f"{text[:60]!r} stands under no heading")
            elif _REFUSAL.match(found["text"]):
                faults.append("the answer is a refusal")
            else:
                lines.append(Line(section, found["text"], _parse_seqs(cited)))
        elif text and not _NOTHING.fullmatch(text):
            faults.append(f"{text[:60]!r} is not a line that cites its events")
    return lines, faults if lines or faults else ["the answer is empty"]


class Told:
    """The events of the narrative's span, against which lines are checked."""

    def __init__(self, events: dict[int, Event]) -> None:
        said = (UserSaid, ModelSaid, ToolReturned)
        self.events = {seq: event for seq, event in events.items() if isinstance(event, said)}
        self.whole = normalise_text("\n".join(map(_render_event_words, self.events.values())))
        self.users = "\n".join(
            _render_event_words(event) for event in self.events.values() if by_user(event)
        )

    @cached_property
    def own(self) -> WordIndex:
        """What the user and the assistant said."""
        own = (one for one in self.events.values() if by_user(one) or isinstance(one, ModelSaid))
        return WordIndex("\n".join(map(_render_event_words, own)))

    @cached_property
    def orders(self) -> tuple[str, frozenset[str]]:
        """What others than the user demand or pretend: the passages, and the runs in them."""
        passages: list[str] = []
        users = join_words(self.users)
        for event in self.events.values():
            if not by_user(event) and not isinstance(event, ModelSaid):
                orders = map(join_words, iterate_injected_orders(_render_event_words(event)))
                passages += (passage for passage in orders if passage not in users)
        runs = {run for passage in passages for run in iterate_word_runs(passage)}
        runs -= {*iterate_word_runs(users)}
        return "".join(f" {passage} \n" for passage in passages), frozenset(runs)


def list_line_faults(line: Line, told: Told) -> list[str]:
    """List what is wrong with a line."""
    short = line.text[:60]
    faults = [f"event {seq} is not in the span" for seq in line.seqs if seq not in told.events]
    if not line.seqs:
        faults.append(f"{short!r} cites nothing")
    if faults:
        return faults
    text = normalise_text(line.text)
    exact = (*count_names(text), *_QUOTE.findall(text))
    faults += [
        f"{one!r} does not occur in the events"
        for one in exact
        if normalise_text(one) not in told.whole
    ]
    lone = (one for one in _NUMBER.findall(text) if not _has_number(one, told.whole))
    faults += [f"the number {one} does not occur in the events" for one in lone]
    if _SCRIPTS.search(text):
        faults.append(f"{short!r} has words of two scripts in it")
    if _has_injected_order(text, told):
        faults.append(f"{short!r} repeats what a tool's output demands or pretends")
    unquoted = _QUOTE.sub(" ", text)
    cited = [told.events[seq] for seq in line.seqs]
    if line.section == GOALS or USER.search(unquoted):
        faults += _not_the_users(text, cited)
    elif LAW.search(unquoted):
        faults += _not_theirs(text, cited)
    elif line.section in (DECISIONS, OPEN):
        strange, of = told.own.list_unknown_words(unquoted)
        if len(strange) * 2 > of:
            faults.append(f"{short!r} is neither the user's nor the assistant's: {strange[:3]}")
    return faults


def _not_the_users(text: str, cited: Sequence[Event]) -> list[str]:
    """List why a line may not speak for the user: only their own cited words may."""
    if not all(map(by_user, cited)):
        return [f"{text[:60]!r} speaks for the user and rests on other words than theirs"]
    said = "\n".join(map(_render_event_words, cited))
    strange, of = _words_of(said).list_unknown_words(text)
    strange += [
        one for one in _QUOTE.findall(text) if normalise_text(one) not in normalise_text(said)
    ]
    strange += [text] if not of and join_words(text) not in join_words(said) else []
    faults = [f"the user did not say {word[:60]!r}" for word in strange[:3]]
    if not faults and bool(NOT.search(text)) != bool(
        NOT.search(choose_nearest_passage(text, said))
    ):
        faults.append(f"{text[:60]!r} turns what the user said into its opposite")
    return faults


def _not_theirs(text: str, cited: Sequence[Event]) -> list[str]:
    """List why a line may not state a rule: only the user and the assistant may, not a tool."""
    if not all(by_user(event) or isinstance(event, ModelSaid) for event in cited):
        return [f"{text[:60]!r} lays down a rule and rests on a tool's words"]
    strange, _ = _words_of("\n".join(map(_render_event_words, cited))).list_unknown_words(text)
    return [f"neither the user nor the assistant said {word!r} there" for word in strange[:3]]


def _has_injected_order(text: str, told: Told) -> bool:
    """Whether a line repeats what a tool's output commands, as a whole or in part."""
    passages, known = told.orders
    own = join_words(text)
    if any(run in known for run in iterate_word_runs(own)):
        return True
    short = (own, *(join_words(one) for one in _QUOTE.findall(text)))
    found = (one for one in short if has_telling_words(one) and f" {one} " in passages)
    return any(one not in join_words(told.users) for one in found)


def _list_answer_faults(prompt: Prompt, answer: str, stop: Stop) -> list[str]:
    """List why an answer is no narrative at all."""
    words = answer.strip()
    if not words:
        return ["the answer is empty"]
    if stop != "done":
        return [f"the answer ended early: {stop}"]
    if _REFUSAL.match(words):
        return ["the answer is a refusal"]
    if count_tokens(words) > prompt.tokens * 3 // 2:
        return [f"the answer takes more than {prompt.tokens} tokens"]
    own = {line for line in words.split("\n") if len(line) > 40}  # noqa: PLR2004 - whole sentences
    echoed = own & {*prompt.text.split("\n")}
    if len(echoed) * 2 > len(own) or f"- {FORM} [" in words:
        return ["the answer repeats what it was given"]
    return []


_words_of = lru_cache(maxsize=16)(WordIndex)  # many lines of an answer cite the same few messages


def _render_event_words(event: Event) -> str:
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    calls = (f"{call.name} {call.arguments}" for call in calls_of(event.parts))
    return "\n".join((spoken_text_of(event.parts), *calls))


def _has_number(number: str, whole: str) -> bool:
    """Whether a number occurs, and not only inside another."""
    return re.search(rf"(?<![\d]){re.escape(number)}(?![\d])", whole) is not None


def _parse_seqs(text: str) -> tuple[int, ...]:
    """Parse the cited events; of a span, its two ends."""
    return tuple(dict.fromkeys(int(found) for found in _SEQ.findall(text)))
