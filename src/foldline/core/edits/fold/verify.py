"""Verify a narrative line by line against the log.

What is proven stays, what is not is left out, and nothing is corrected here. Where less than half
stays, the model is asked once more with the faults, and the better of its two answers counts.

A line is proven if the events it cites are in the span, and every path, number, name and quotation
in it occurs in them. Beyond that it depends on what the line claims:

    what the user wants, allows, said   only the user's own words, from the messages it cites
    what must, should or never be       only words of the user or the assistant, which it cites
    decisions, open questions           mostly words of the user or the assistant
    anything                            nothing that a tool's output commands or pretends

A user's own template may ask for prose. Its sentences cite nothing, so they are held to more:

    of the user, in any form            words of one passage of the user's
    rules, permissions, orders          words of one passage of the user's or the assistant's
    next steps and tasks                words of one message of the user's or the assistant's
    anything                            no name that only a tool's command has, nor half its words

Such claims are recognised in eleven languages, by the word tables of `injection_words`. No rule
catches a paraphrase without any of these words: it stands as a cited line of a record, or as the
summarizer's own words, and not under the user's heading.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

from foldline.core import truncate
from foldline.core.edits.fold.answer_text import SummaryClaim, parse_answer
from foldline.core.edits.fold.ask import (
    DECISIONS,
    FACTS,
    FORM,
    GOALS,
    OPEN,
    Prompt,
    build_repair_prompt,
)
from foldline.core.edits.fold.handoff import PROSE
from foldline.core.edits.fold.injection_words import (
    COMMAND,
    LAW,
    NOT,
    POSE,
    TASK,
    USER,
    USER_NAMED,
    WordIndex,
    choose_nearest_passage,
    drop_reporting_words,
    has_telling_words,
    is_same_language,
    is_telling_word,
    iterate_injected_orders,
    iterate_word_runs,
    join_words,
    list_proper_names,
    normalise_text,
    split_clauses,
    split_passages,
    split_words,
)
from foldline.core.log import Event, Logged, ModelSaid, Stop, ToolReturned, UserSaid, by_user
from foldline.core.names import count_names
from foldline.core.parts import Line, calls_of, replace_surrogates, spoken_text_of

_REFUSAL = re.compile(
    r"\s*(?:i'?m sorry|i am sorry|sorry,|i can(?:no|['’])t|i am unable|i['’]m unable|as an ai"  # noqa: RUF001
    r"|i won['’]?t|unfortunately, i|es tut mir leid|ich kann (?:das|dabei|ihnen|dir) nicht"  # noqa: RUF001
    r"|抱歉|对不起|我无法|申し訳|lo siento|je suis désolé|извините|к сожалению)",
    re.IGNORECASE,
)
_SCRIPTS = re.compile(r"[a-z](?=\w*[Ѐ-ӿͰ-Ͽ])|[Ѐ-ӿͰ-Ͽ](?=\w*[a-z])", re.IGNORECASE)
_QUOTE = re.compile(r"[\"“„«`「『]([^\"“”„»`「」『』\n]{2,300})[\"”“»`」』]")
_NUMBER = re.compile(r"(?<![\w.,])\d[\d.,]*\d(?![\d])|(?<![\w.,])\d(?![\w])")
# A sentence that begins so says nothing without the one before it.
_GOES_BACK = re.compile(
    r"\W*(?:it|its|this|that|these|those|they|he|she|such|then|however|but|so|therefore|instead"
    r"|otherwise|both|neither|es|das|dies\w*|sie|er|dann|aber|deshalb|stattdessen|sonst|esto|eso"
    r"|cela|это|он|она)\b|\W*[它这那]|\W*(?:これ|それ|しかし)",
    re.IGNORECASE,
)
_LONGER = 1.5  # times the tokens asked for
_SENTENCE = 3  # words of a clause that says something on its own


@dataclass(frozen=True, slots=True)
class Accepted:
    """The lines that are proven."""

    lines: tuple[Line, ...]
    left_out: tuple[str, ...] = ()
    """Why each of the other lines is not among them."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Ask once more, with this prompt."""

    prompt: Prompt
    faults: tuple[str, ...]
    proven: Accepted = Accepted(())
    """What holds of the first answer, if the second is no better."""


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
    answer = replace_surrogates(answer).strip()
    faults = _list_answer_faults(prompt, answer, stop)
    proven = Accepted(())
    if not faults:
        lo, hi = prompt.range.lo, prompt.range.hi
        source = SourceText(
            {seq: one for seq, one in events if lo <= seq <= (seq if hi is None else hi)}
        )
        proven, faults = _verify_claims(prompt, answer, source, is_cut=stop != "done")
    if again and not proven.lines:
        return Rejected(tuple(faults))
    if again or len(proven.lines) >= max(len(proven.left_out), 1):
        return proven
    return Repair(build_repair_prompt(prompt, faults), tuple(faults), proven)


def choose_better_answer(first: Repair, second: Accepted | Rejected) -> Accepted | Rejected:
    """Choose the answer of which more is proven, of a first one and its repair."""
    if not first.proven.lines:
        return second
    if isinstance(second, Rejected) or len(second.lines) <= len(first.proven.lines):
        return first.proven
    return second


def _verify_claims(
    prompt: Prompt, answer: str, source: "SourceText", *, is_cut: bool
) -> tuple[Accepted, list[str]]:
    """Keep the proven claims of an answer; also list the faults of the others."""
    lines: dict[Line, None] = {}
    left_out: list[str] = []
    every: list[str] = []
    whole = truncate.truncate_to_head(answer, int(prompt.tokens * _LONGER))
    is_long = len(whole) < len(answer)
    if is_long and not prompt.own and answer[len(whole)] != "\n":
        whole = whole[: whole.rfind("\n") + 1]  # a line without its end may say something else
    span = prompt.range.lo, max(source.events, default=0)
    was_left_out = False
    for claim in parse_answer(whole, prose=bool(prompt.own), cut=is_cut or is_long):
        line = _make_line(claim, span, prose=bool(prompt.own))
        faults = _list_claim_faults(claim, line, source, prompt)
        if claim.goes_on and was_left_out and _GOES_BACK.match(claim.text):
            faults.append(f"{claim.text[:60]!r} rests on a sentence that is left out")
        was_left_out = bool(faults)
        if faults:
            left_out.append("; ".join(faults[:2]))
            every += faults
        else:
            lines[line] = None
    if is_long:
        left_out.append(f"the answer takes more than {prompt.tokens} tokens: its rest")
        every.append(left_out[-1])
    if not lines and not every:
        every.append("the answer is empty")
    return Accepted(tuple(lines), tuple(left_out)), every


def _make_line(claim: SummaryClaim, span: tuple[int, int], *, prose: bool) -> Line:
    """Make the line that a claim becomes if it is proven."""
    if claim.section and claim.seqs is not None:
        return Line(claim.section, claim.text, claim.seqs)
    if not prose:  # an answer without headings is one list of facts
        return Line("" if claim.label else FACTS, claim.text, claim.seqs or ())
    # Without its heading a sentence could say something else: "Rejected: use MySQL".
    label = claim.label[:1] + claim.label[1:].lower() if claim.label else ""
    return Line(PROSE, f"{label}: {claim.text}" if label else claim.text, span)


def _list_claim_faults(
    claim: SummaryClaim, line: Line, source: "SourceText", prompt: Prompt
) -> list[str]:
    """List what is wrong with a claim."""
    short = claim.text[:60]
    if claim.kind == "unseen":
        return [f"{short!r} has characters in it that cannot be seen"]
    if claim.kind == "cut":
        return [f"{short!r} was cut off"]
    if _REFUSAL.match(claim.text):
        return ["the answer is a refusal"]
    if line.section == PROSE:
        if f" {join_words(claim.text)} " in f" {join_words(prompt.own)} ":
            return [f"{short!r} repeats the question"]
        return list_sentence_faults(line.text, claim.seqs or (), source)
    if claim.seqs is None:
        return [f"{short!r} is not a line that cites its events"]
    if not line.section:
        return [f"{short!r} stands under {claim.label!r}, which is none of the headings"]
    return list_line_faults(line, source)


class SourceText:
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
    def passages(self) -> list[str]:
        """What others than the user demand or pretend."""
        passages: list[str] = []
        users = join_words(self.users)
        for event in self.events.values():
            if not by_user(event) and not isinstance(event, ModelSaid):
                found = iterate_injected_orders(_render_event_words(event))
                passages += (one for one in found if join_words(one) not in users)
        return passages

    @cached_property
    def orders(self) -> tuple[str, frozenset[str]]:
        """The passages that demand or pretend, as joined words, and the runs in them."""
        passages = [*map(join_words, self.passages)]
        runs = {run for passage in passages for run in iterate_word_runs(passage)}
        runs -= {*iterate_word_runs(join_words(self.users))}
        return "".join(f" {passage} \n" for passage in passages), frozenset(runs)

    @cached_property
    def foreign(self) -> list[tuple[frozenset[str], WordIndex, int]]:
        """Of each passage that demands: names and words that are its own, and how many words."""
        own = self.own
        found: list[tuple[frozenset[str], WordIndex, int]] = []
        for passage in dict.fromkeys(self.passages):
            names = frozenset(one for one in count_names(passage) if not own.has_text(one))
            words, _ = own.list_unknown_words(passage)
            found.append((names, WordIndex(" ".join(words)), len({*words})))
        return found

    @cached_property
    def said(self) -> list[tuple[str, frozenset[str]]]:
        """The passages of all events, each with its words."""
        texts = map(_render_event_words, self.events.values())
        passages = dict.fromkeys(one for text in texts for one in split_passages(text))
        return [(one, split_words(one)) for one in passages]

    @cached_property
    def every(self) -> WordIndex:
        """All words of the span."""
        return WordIndex(self.whole)

    @cached_property
    def voices(self) -> list[tuple[bool, str, WordIndex]]:
        """The messages of the user and the assistant: whether it is the user's, and its words."""
        own = (one for one in self.events.values() if by_user(one) or isinstance(one, ModelSaid))
        texts = ((by_user(event), _render_event_words(event)) for event in own)
        return [(users, text, WordIndex(text)) for users, text in texts]


def list_line_faults(line: Line, source: SourceText) -> list[str]:
    """List what is wrong with a line."""
    short = line.text[:60]
    faults = [f"event {seq} is not in the span" for seq in line.seqs if seq not in source.events]
    if not line.seqs:
        faults.append(f"{short!r} cites nothing")
    if faults:
        return faults
    text = normalise_text(line.text)
    faults += _list_unknown_names(text, source)
    unquoted = _QUOTE.sub(" ", text)
    cited = [source.events[seq] for seq in line.seqs]
    if line.section == GOALS or USER.search(unquoted):
        faults += _not_the_users(text, cited)
    elif LAW.search(unquoted):
        faults += _not_theirs(text, cited)
    elif line.section in (DECISIONS, OPEN):
        strange, of = source.own.list_unknown_words(unquoted)
        if len(strange) * 2 > of:
            faults.append(f"{short!r} is neither the user's nor the assistant's: {strange[:3]}")
    return faults


def list_sentence_faults(text: str, seqs: Sequence[int], source: SourceText) -> list[str]:
    """List what is wrong with a sentence that stands for itself, whatever it cites."""
    short = text[:60]
    faults = [f"event {seq} is not in the span" for seq in {*seqs} - {*source.events}]
    text = normalise_text(text)
    faults += _list_unknown_names(text, source)
    unquoted = _QUOTE.sub(" ", text)
    strange = [one for one in list_proper_names(unquoted) if not source.every.has_text(one)]
    faults += [f"{one!r} does not occur in the events" for one in strange]
    if POSE.search(text):
        faults.append(f"{short!r} poses as another speaker or as a record")
    if _paraphrases_order(text, source):
        faults.append(f"{short!r} is what a tool's output demands, in other words")
    unknown, of = source.every.list_unknown_words(drop_reporting_words(text))
    if len(unknown) == of and not count_names(text):
        faults.append(f"{short!r} says nothing of the events")
    elif len(unknown) * 2 > of and is_same_language(text, source.whole):
        faults.append(f"{short!r} uses words that do not occur in the events: {unknown[:3]}")
    if _is_opposite(text, source):
        faults.append(f"{short!r} turns what was said into its opposite")
    if faults:
        return faults
    if USER.search(unquoted) or USER_NAMED.search(unquoted):
        if not _is_supported(text, source, only_user=True, by_passage=True):
            return [f"{short!r} speaks for the user, and no passage of theirs says so"]
    elif LAW.search(unquoted) or COMMAND.search(unquoted):
        if not _is_supported(text, source, only_user=False, by_passage=True):
            return [f"{short!r} lays down a rule that neither the user nor the assistant stated"]
    elif TASK.search(unquoted) and not _is_supported(
        text, source, only_user=False, by_passage=False
    ):
        return [f"{short!r} is a task of neither the user nor the assistant"]
    return []


def _list_unknown_names(text: str, source: SourceText) -> list[str]:
    """List the names, quotations and numbers that do not occur, and what a tool commands."""
    short = text[:60]
    exact = (*count_names(text), *_QUOTE.findall(text))
    faults = [
        f"{one!r} does not occur in the events"
        for one in exact
        if normalise_text(one) not in source.whole
    ]
    lone = (one for one in _NUMBER.findall(text) if not _has_number(one, source.whole))
    faults += [f"the number {one} does not occur in the events" for one in lone]
    if _SCRIPTS.search(text):
        faults.append(f"{short!r} has words of two scripts in it")
    if _has_injected_order(text, source):
        faults.append(f"{short!r} repeats what a tool's output demands or pretends")
    return faults


def _paraphrases_order(text: str, source: SourceText) -> bool:
    """Whether a sentence has a name that only a tool's command has, or half of its words."""
    names = count_names(text)
    for foreign, index, size in source.foreign:
        if any(one in other for one in names for other in foreign):
            return True
        unknown, of = index.list_unknown_words(text)
        shared = of - len(unknown)
        if shared > 1 and shared * 2 >= min(of, size):
            return True
    return False


def _is_opposite(text: str, source: SourceText) -> bool:
    """Whether a clause has every word of a passage but its negation, or one more."""
    for clause in split_clauses(text):
        words = split_words(NOT.sub(" ", clause))
        found = [passage for passage, own in source.said if words <= own]
        if len(words) >= _SENTENCE and any(map(is_telling_word, words)) and found:
            is_denied = NOT.search(clause) is not None
            if all((NOT.search(passage) is not None) != is_denied for passage in found):
                return True
    return False


def _is_supported(text: str, source: SourceText, *, only_user: bool, by_passage: bool) -> bool:
    """Whether one message says all of a sentence, or every longer clause of it, and no opposite.

    A clause of few words is no claim of its own: "the logs and the database" may stem from two.
    """
    bare = drop_reporting_words(text)
    clauses = split_clauses(bare)
    for users, said, index in source.voices:
        if (only_user and not users) or not _says(index, said, bare):
            continue
        if not by_passage:
            if _has_same_sense(clauses, said):
                return True
            continue
        for whole in ([bare], clauses):
            found = [_find_passage(one, said) for one in whole]
            long_enough = len(whole) == 1 or all(map(_is_clause, whole))
            if long_enough and all(found) and _has_same_sense(clauses, said):
                return True
    return False


def _find_passage(clause: str, said: str) -> str:
    """Find a passage of a message that has all telling words of a clause; "" if none has."""
    passages = (normalise_text(one) for one in split_passages(said))
    return next((one for one in passages if _says(_words_of(one), one, clause)), "")


def _says(index: WordIndex, said: str, text: str) -> bool:
    """Whether all words, names and numbers of a text occur in what was said, and there are any."""
    unknown, of = index.list_unknown_words(text)
    names, said = count_names(text), normalise_text(said)
    return (
        not unknown
        and bool(of or names)
        and all(one in said for one in names)
        and all(_has_number(one, said) for one in _NUMBER.findall(text))
    )


def _is_clause(text: str) -> bool:
    return _words_of("").list_unknown_words(text)[1] >= _SENTENCE


def _has_same_sense(clauses: Sequence[str], said: str) -> bool:
    """Whether no clause says the opposite of the passage that is nearest to it."""
    near = ((one, choose_nearest_passage(one, said)) for one in clauses)
    return all(bool(NOT.search(one)) == bool(NOT.search(passage)) for one, passage in near)


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


def _has_injected_order(text: str, source: SourceText) -> bool:
    """Whether a line repeats what a tool's output commands, as a whole or in part."""
    passages, known = source.orders
    own = join_words(text)
    if any(run in known for run in iterate_word_runs(own)):
        return True
    short = (own, *(join_words(one) for one in _QUOTE.findall(text)))
    found = (one for one in short if has_telling_words(one) and f" {one} " in passages)
    return any(one not in join_words(source.users) for one in found)


def _list_answer_faults(prompt: Prompt, answer: str, stop: Stop) -> list[str]:
    """List why an answer is no narrative at all."""
    if not answer:
        return ["the answer is empty"]
    if stop not in ("done", "length"):
        return [f"the answer ended early: {stop}"]
    if _REFUSAL.match(answer):
        return ["the answer is a refusal"]
    own = {line for line in answer.split("\n") if len(line) > 40}  # noqa: PLR2004 - whole sentences
    echoed = own & {*prompt.text.split("\n")}
    if len(echoed) * 2 > len(own) or f"- {FORM} [" in answer:
        return ["the answer repeats what it was given"]
    return []


_words_of = lru_cache(maxsize=256)(WordIndex)  # an answer's lines rest on the same few messages


def _render_event_words(event: Event) -> str:
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    calls = (f"{call.name} {call.arguments}" for call in calls_of(event.parts))
    return "\n".join((spoken_text_of(event.parts), *calls))


def _has_number(number: str, whole: str) -> bool:
    """Whether a number occurs, and not only inside another."""
    return re.search(rf"(?<![\d]){re.escape(number)}(?![\d])", whole) is not None
