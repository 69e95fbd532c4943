"""Whether a narrative may be believed: read, and proven line by line against the log.

Knows what an answer must look like and what each line must rest on. Refuses to mend: it says what
is wrong, the teller is asked once more, and then the handoff goes without.

A line is proven where the events it cites are in the span, and every path, number, name and
quotation in it occurs in the events told of. What the user wants may be told only in the user's
own words: of a line about goals, approvals or rules, every word must be in the messages it cites.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foldline.core.edits.fold.ask import GOALS, SECTIONS, Prompt, repaired
from foldline.core.log import Event, Logged, ModelSaid, Stop, ToolReturned, UserSaid
from foldline.core.names import names
from foldline.core.parts import Line, calls_of, text_of
from foldline.core.tokens import count

_LINE = re.compile(r"^[-*•] +(?P<text>\S.*?) *\[(?P<seqs>[\dlog:,\s-]{1,200})\]\.?$")
_SEQ = re.compile(r"(\d{1,18})(?:\s*-\s*(?:log:)?(\d{1,18}))?")
_REFUSAL = re.compile(
    r"\s*(?:i'?m sorry|sorry,|i can(?:no|')t|i am unable|i'm unable|as an ai|i won'?t"
    r"|unfortunately, i)",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"[\"“«`]([^\"”»`\n]{3,300})[\"”»`]")
_NUMBER = re.compile(r"(?<![\w.])\d[\d.,]*\d|(?<![\w.,])\d(?![\w])")
_WORD = re.compile(r"[^\W\d_]{3,}")
# Words by which a line would speak for the user or lay down the law.
_WILL = re.compile(
    r"\b(?:must|always|never|shall|from now on|do not|don'?t|should|ignore|disregard|forget|obey"
    r"|user(?:'s)? (?:\w+ ){0,2}(?:want|ask|request|approv|confirm|agre|authori|allow|permit|prefer"
    r"|told|instruct|decid|requir|demand)\w*|approved|authori[sz]ed|permission|consent\w*|rules?"
    r"|instructions?|goals?|your task|new task|mission|priority|override\w*)\b",
    re.IGNORECASE,
)
_PLAIN = frozenset(
    (
        *("the", "and", "that", "this", "with", "from", "for", "not", "are", "was", "were", "has"),
        *("have", "had", "will", "would", "user", "users", "wants", "want", "asked", "asks"),
        *("said", "says", "told", "goal", "goals", "preference", "preferences", "prefers", "they"),
        *("their", "them", "its", "also", "when", "then", "than", "into", "only", "all", "any"),
    )
)


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
    events: Sequence[Logged],
    *,
    stop: Stop = "done",
    again: bool = False,
) -> Verdict:
    """What becomes of an answer; `again` says that this is the second one."""
    faults = _unusable(prompt, answer, stop)
    lines: list[Line] = []
    if not faults:
        lines, faults = parse(answer)
    if not faults:
        told = dict(events)
        whole = flat("\n".join(_said(event) for event in told.values()))
        faults = [fault for line in lines for fault in prove(line, told, whole)]
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
        if text.startswith("#"):
            title = text.lstrip("#").strip().rstrip(":")
            section = next((name for name in SECTIONS if name.lower() == title.lower()), "")
            faults += [] if section else [f"{title!r} is none of the headings"]
        elif found := _LINE.match(text):
            if section:
                lines.append(Line(section, found["text"], _seqs(found["seqs"])))
            else:
                faults.append(f"{text[:60]!r} stands under no heading")
        elif text:
            faults.append(f"{text[:60]!r} is not a line that cites its events")
    return lines, faults if lines or faults else ["the answer is empty"]


def prove(line: Line, events: Mapping[int, Event], whole: str) -> list[str]:
    """What is wrong with a line; `events` were told of, and `whole` is all they say."""
    faults = [f"event {seq} is not in the span" for seq in line.seqs if seq not in events]
    if not line.seqs:
        faults.append(f"{line.text[:60]!r} cites nothing")
    if faults:
        return faults
    exact = (*names(line.text), *_NUMBER.findall(line.text), *_QUOTE.findall(line.text))
    faults += [f"{one!r} does not occur in the events" for one in exact if flat(one) not in whole]
    if line.section == GOALS or _WILL.search(line.text):
        faults += _not_the_users(line, events)
    return faults


def _not_the_users(line: Line, events: Mapping[int, Event]) -> list[str]:
    """R-30, R-72: only what the user said may be told as wanted, allowed or ruled."""
    cited = [events[seq] for seq in line.seqs]
    if not all(isinstance(event, UserSaid) and event.speaker == "human" for event in cited):
        return [f"{line.text[:60]!r} speaks for the user and rests on other words than theirs"]
    own = {word.lower() for event in cited for word in _WORD.findall(_said(event))}
    strange = [w for w in _WORD.findall(line.text) if w.lower() not in own | _PLAIN]
    return [f"the user did not say {word!r}" for word in strange[:3]]


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
    return ["the answer repeats what it was given"] if len(echoed) * 2 > len(own) else []


def _said(event: Event) -> str:
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    calls = (f"{call.name} {call.arguments}" for call in calls_of(event.parts))
    return "\n".join((text_of(event.parts), *calls))


def _seqs(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for lo, hi in _SEQ.findall(text):
        found += range(int(lo), min(int(hi), int(lo) + 50) + 1) if hi else [int(lo)]
    return tuple(dict.fromkeys(found))


def flat(text: str) -> str:
    """A text as one line, so that a quotation is found whatever its line ends."""
    return " ".join(text.split())
