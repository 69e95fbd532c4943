"""Whether a narrative may be believed: read, and proven line by line against the log.

Knows what an answer must look like and what each line must rest on. Refuses to mend: it says what
is wrong, the teller is asked once more, and then the handoff goes without.

A line is proven where the events it cites were told of, and every path, number, name and quotation
in it occurs in them. Beyond that it depends on what the line claims:

    what the user wants, allows, said   only the user's own words, from the messages it cites
    what must, should or never be       only words of the user or the assistant, which it cites
    decisions, open questions           mostly words of the user or the assistant
    anything                            nothing that a tool's output commands or pretends

Words of will are known in eleven languages, see `injection_words`. A paraphrase that uses none of
them, as a mere fact, is beyond rules: it stands as a cited line of a record, under no heading of
the user's.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

from foldline.core.edits.fold.ask import DECISIONS, FORM, GOALS, OPEN, SECTIONS, Prompt, repaired
from foldline.core.edits.fold.injection_words import (
    LAW,
    NOT,
    UNSEEN,
    USER,
    WordIndex,
    flat,
    joined,
    nearest,
    orders,
    runs,
    tells,
)
from foldline.core.log import Event, Logged, ModelSaid, Stop, ToolReturned, UserSaid, by_user
from foldline.core.names import names
from foldline.core.parts import Line, calls_of, sound, spoken
from foldline.core.tokens import count

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
    """Ask once more, with this."""

    prompt: Prompt
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The handoff goes without a narrative, because of this."""

    faults: tuple[str, ...]


Verdict: TypeAlias = Accepted | Repair | Rejected


def judge(
    prompt: Prompt,
    answer: str,
    events: Iterable[Logged],
    *,
    stop: Stop = "done",
    again: bool = False,
) -> Verdict:
    """What becomes of an answer; `again` says that this is the second one."""
    answer = sound(answer)
    faults = _unusable(prompt, answer, stop)
    lines: list[Line] = []
    if not faults:
        lines, faults = parse(answer)
    if not faults:
        lo, hi = prompt.range.lo, prompt.range.hi
        told = Told({seq: one for seq, one in events if lo <= seq <= (seq if hi is None else hi)})
        faults = [fault for line in lines for fault in prove(line, told)]
    if not faults:
        return Accepted(tuple(lines))
    return Rejected(tuple(faults)) if again else Repair(repaired(prompt, faults), tuple(faults))


def parse(answer: str) -> tuple[list[Line], list[str]]:
    """The lines of an answer, and what in it is no such line."""
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
                lines.append(Line(section, found["text"], _seqs(cited)))
        elif text and not _NOTHING.fullmatch(text):
            faults.append(f"{text[:60]!r} is not a line that cites its events")
    return lines, faults if lines or faults else ["the answer is empty"]


class Told:
    """The events that were told of, and what lines are held against."""

    def __init__(self, events: dict[int, Event]) -> None:
        said = (UserSaid, ModelSaid, ToolReturned)
        self.events = {seq: event for seq, event in events.items() if isinstance(event, said)}
        self.whole = flat("\n".join(map(_said, self.events.values())))
        self.users = "\n".join(_said(event) for event in self.events.values() if by_user(event))

    @cached_property
    def own(self) -> WordIndex:
        """What the user and the assistant said."""
        own = (one for one in self.events.values() if by_user(one) or isinstance(one, ModelSaid))
        return WordIndex("\n".join(map(_said, own)))

    @cached_property
    def orders(self) -> tuple[str, frozenset[str]]:
        """What others than the user demand or pretend: their passages, and the runs in them."""
        found: list[str] = []
        users = joined(self.users)
        for event in self.events.values():
            if not by_user(event) and not isinstance(event, ModelSaid):
                wanted = map(joined, orders(_said(event)))
                found += (one for one in wanted if one not in users)
        known = {run for text in found for run in runs(text)}
        return "".join(f" {one} \n" for one in found), frozenset(known - {*runs(users)})


def prove(line: Line, told: Told) -> list[str]:
    """What is wrong with a line."""
    short = line.text[:60]
    faults = [f"event {seq} is not in the span" for seq in line.seqs if seq not in told.events]
    if not line.seqs:
        faults.append(f"{short!r} cites nothing")
    if faults:
        return faults
    text = flat(line.text)
    exact = (*names(text), *_QUOTE.findall(text))
    faults += [
        f"{one!r} does not occur in the events" for one in exact if flat(one) not in told.whole
    ]
    lone = (one for one in _NUMBER.findall(text) if not _stands(one, told.whole))
    faults += [f"the number {one} does not occur in the events" for one in lone]
    if _SCRIPTS.search(text):
        faults.append(f"{short!r} has words of two scripts in it")
    if _ordered(text, told):
        faults.append(f"{short!r} repeats what a tool's output demands or pretends")
    unquoted = _QUOTE.sub(" ", text)
    cited = [told.events[seq] for seq in line.seqs]
    if line.section == GOALS or USER.search(unquoted):
        faults += _not_the_users(text, cited)
    elif LAW.search(unquoted):
        faults += _not_theirs(text, cited)
    elif line.section in (DECISIONS, OPEN):
        strange, of = told.own.strange(unquoted)
        if len(strange) * 2 > of:
            faults.append(f"{short!r} is neither the user's nor the assistant's: {strange[:3]}")
    return faults


def _not_the_users(text: str, cited: Sequence[Event]) -> list[str]:
    """R-30, R-72: only what the user said may be told as wanted, allowed or said by them."""
    if not all(map(by_user, cited)):
        return [f"{text[:60]!r} speaks for the user and rests on other words than theirs"]
    said = "\n".join(map(_said, cited))
    strange, of = _words_of(said).strange(text)
    strange += [one for one in _QUOTE.findall(text) if flat(one) not in flat(said)]
    strange += [text] if not of and joined(text) not in joined(said) else []
    faults = [f"the user did not say {word[:60]!r}" for word in strange[:3]]
    if not faults and bool(NOT.search(text)) != bool(NOT.search(nearest(text, said))):
        faults.append(f"{text[:60]!r} turns what the user said into its opposite")
    return faults


def _not_theirs(text: str, cited: Sequence[Event]) -> list[str]:
    """What must be or never be is for the user and the assistant to say, not for a tool."""
    if not all(by_user(event) or isinstance(event, ModelSaid) for event in cited):
        return [f"{text[:60]!r} lays down a rule and rests on a tool's words"]
    strange, _ = _words_of("\n".join(map(_said, cited))).strange(text)
    return [f"neither the user nor the assistant said {word!r} there" for word in strange[:3]]


def _ordered(text: str, told: Told) -> bool:
    """R-72: whether a line takes over what a tool's output commands, as a whole or in part."""
    passages, known = told.orders
    own = joined(text)
    if any(run in known for run in runs(own)):
        return True
    short = (own, *(joined(one) for one in _QUOTE.findall(text)))
    found = (one for one in short if tells(one) and f" {one} " in passages)
    return any(one not in joined(told.users) for one in found)


def _unusable(prompt: Prompt, answer: str, stop: Stop) -> list[str]:
    """R-31: what is no narrative at all."""
    words = answer.strip()
    if not words:
        return ["the answer is empty"]
    if stop != "done":
        return [f"the answer ended early: {stop}"]
    if _REFUSAL.match(words):
        return ["the answer is a refusal"]
    if count(words) > prompt.tokens * 3 // 2:
        return [f"the answer takes more than {prompt.tokens} tokens"]
    own = {line for line in words.split("\n") if len(line) > 40}  # noqa: PLR2004 - whole sentences
    echoed = own & {*prompt.text.split("\n")}
    if len(echoed) * 2 > len(own) or f"- {FORM} [" in words:
        return ["the answer repeats what it was given"]
    return []


@lru_cache(maxsize=16)  # many lines of an answer cite the same few messages
def _words_of(text: str) -> WordIndex:
    return WordIndex(text)


def _said(event: Event) -> str:
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    calls = (f"{call.name} {call.arguments}" for call in calls_of(event.parts))
    return "\n".join((spoken(event.parts), *calls))


def _stands(number: str, whole: str) -> bool:
    """Whether a number occurs, and not only as a piece of another."""
    return re.search(rf"(?<![\d]){re.escape(number)}(?![\d])", whole) is not None


def _seqs(text: str) -> tuple[int, ...]:
    """The events cited; of a span its two ends."""
    return tuple(dict.fromkeys(int(found) for found in _SEQ.findall(text)))
