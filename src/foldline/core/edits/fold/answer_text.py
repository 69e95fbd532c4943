"""Split a model's answer into what it claims: cited lines, and sentences that cite nothing.

Models dress their answers up: a preamble, a closing remark, a code fence around the whole, bold or
numbered headings, headings in other words. That is understood or ignored here; `verify` judges the
claims.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from foldline.core.edits.fold.ask import DECISIONS, FACTS, GOALS, OPEN, SECTIONS
from foldline.core.edits.fold.injection_words import UNSEEN

# ruff: noqa: E501, RUF001 - words and signs of many scripts, in readable tables

_CITED = r"[\[【［]((?:events?|log:|[\d,，、;\s–-]){1,200})[\]】］]"
_BULLET = re.compile(r"^(?:[-*•–+]|\d{1,3}[.)]) +")
_LINE = re.compile(rf"^(?P<text>\S.*?) *{_CITED}[.。]?$")
_INSIDE = re.compile(rf"(?<=\s){_CITED}")
_SEQ = re.compile(r"\d{1,18}")
_NOTHING = re.compile(r"\(?(?:none|nothing|n/a|keine|nichts|无|なし)\)?[.。]?", re.IGNORECASE)
_FENCE = re.compile(r"(?:```|~~~)\w*|[-*_]{3,}")
_BOLD = re.compile(r"\*\*[^*]+\*\*:?|__[^_]+__:?")
# Words that tell which of our headings another one means; the strictest of several counts.
_NEAR = {
    GOALS: r"goal|preference|\baims?\b|constraint|\bziel|vorlieb|wünsche|objetivo|目标|偏好|目標",
    OPEN: r"open|pending|question|tasks?\b|to-?do|next|offen|frage|aufgabe|pendiente|待|问题|未",
    DECISIONS: r"decision|outcome|entscheidung|ergebnis|decisi[oó]n|décision|决定|決定",
    SECTIONS[4]: r"tool|\bcalls?\b|werkzeug|aufruf|herramienta|outil|工具|ツール",
    SECTIONS[2]: r"state|changes?\b|änderung|zustand|estado|cambio|changement|状态|变更|変更",
    SECTIONS[5]: r"files?\b|paths?\b|code\b|datei|pfad|archivo|fichier|文件|代码|ファイル",
    FACTS: r"facts?\b|numbers?\b|reference|fakt|zahl|hecho|número|\bfaits?\b|事实|数字|事実",
}
_TITLE = 5  # words of a heading that may mean one of ours
_SUMMARY = (
    r"summary|summari[sz]|overview|recap|condensed|zusammenfassung|überblick|resumen|résumé"
    r"|итог|总结|摘要|概要|まとめ|要約|요약"
)
_SURE = (
    r"(?:(?:sure|certainly|of course|ok(?:ay)?|absolutely|gerne?|natürlich|claro|bien sûr)[,!. ]*)"
)
_HERE = r"(?:here(?:['’]s| is| are)|below is|hier (?:ist|sind|kommt)|aquí (?:está|tienes)|voici|以下是?)"
_PREAMBLE = re.compile(
    rf"{_SURE}|{_SURE}?{_HERE}.{{0,160}}[:：]"
    rf"|{_SURE}?{_HERE}[^.:：]{{0,80}}(?:{_SUMMARY})[^.:：]{{0,80}}\.?"  # no sentence behind it
    rf"|.{{0,80}}(?:{_SUMMARY}).{{0,80}}[:：]",
    re.IGNORECASE,
)
_LEAD = re.compile(
    rf"\W*{_SURE}?(?:{_HERE}[^.:：]{{0,120}}|(?:\w+ ){{0,3}}(?:{_SUMMARY})\w*)[:：][\s*]+",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"(?:please )?(?:let me know|feel free|if you(?:['’]d| would| need| have| want)|i hope|hope this"
    r"|is there anything|would you like|do you want me|shall i|this (?:summary|concludes|covers)"
    r"|sag(?:en sie)? (?:mir )?bescheid|lass(?:en sie)? (?:es )?mich wissen|ich hoffe|falls du"
    r"|falls sie|wenn du|wenn sie|espero|j['’]espère|n['’]hésite|希望|如果).{0,300}",
    re.IGNORECASE,
)
_PLAIN_TITLE = re.compile(rf"(?:\w+ ){{0,3}}(?:{_SUMMARY})\w*(?: \w+){{0,2}}", re.IGNORECASE)
_STOP = re.compile(r"(?:[.!?][\"'”’)\]]*\s+|[。！？][」』”]?)")
_LOOSE = re.compile(r"\s+([.,;:!?])")  # what a citation leaves before its stop
_ENDED = re.compile(r"[.!?。！？…][\"'”’`*)\]」』]*$")
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|no|nr|dr|mr|mrs|ms|st|ca|bzw|approx|z\. ?b|d\. ?h|u\. ?a)|\b[a-z])\.\s*$",
    re.IGNORECASE,
)


class SummaryClaim(NamedTuple):
    """One line or sentence of an answer."""

    text: str
    section: str = ""
    """Which of our headings it stands under; "" if none."""
    label: str = ""
    """The answer's own heading above it."""
    seqs: tuple[int, ...] | None = None
    """The events that it cites; None if it has no citation at all."""
    kind: str = ""
    """`bullet`, `remark` (a line without a bullet), `unseen`, or `cut`: not finished."""
    goes_on: bool = False
    """Whether it follows another sentence of the same line."""


def parse_answer(answer: str, *, prose: bool, cut: bool = False) -> list[SummaryClaim]:
    """Parse the claims of an answer, in its order.

    With `prose` lines are split into sentences, each with the heading above it. `cut` says that
    the answer was ended before its end: then its last sentence may be a part of one.
    """
    claims = [*_iterate_claims(answer, prose=prose)]
    if not prose:
        return _drop_remarks(claims)
    if claims and claims[0].seqs is None:
        claims[0] = claims[0]._replace(text=_LEAD.sub("", claims[0].text, count=1))
    whole = [one for claim in claims for one in _split_claim(claim)]
    if cut and whole and whole[-1].seqs is None and not _ENDED.search(whole[-1].text):
        whole[-1] = whole[-1]._replace(kind="cut")
    if len(whole) > 1 and _is_preamble(whole[0].text):
        whole = whole[1:]
    while len(whole) > 1 and whole[-1].seqs is None and _CLOSING.match(whole[-1].text):
        whole.pop()
    return whole


def _iterate_claims(answer: str, *, prose: bool) -> Iterator[SummaryClaim]:
    section = label = ""
    is_lasting = is_used = is_gap = False  # of the label: until the next one; has claims; a blank
    begun = False
    lines = [line.strip() for line in answer.strip().split("\n")]
    for line in lines:
        if not line or _FENCE.fullmatch(line):
            is_gap = is_gap or (is_used and not line)
            continue
        text = _BULLET.sub("", line, count=1).strip()
        is_bullet = text != line
        if not begun and _is_preamble(text):
            continue
        begun = True
        title = _find_title(line, text)
        matched = _match_section(title) if title is not None else ""
        is_heading = line.startswith("#") or _BOLD.fullmatch(text) is not None
        if title is not None and (matched or is_heading or prose):
            section, is_lasting = matched, is_heading
            label = "" if _PLAIN_TITLE.fullmatch(title) else title
            is_used = is_gap = False
            continue
        if is_gap and not is_lasting and not is_bullet:
            section, label = ("" if prose else section), ""
        is_used, is_gap = True, False
        kind = "bullet" if is_bullet else "remark"
        if UNSEEN.search(text):
            yield SummaryClaim(text, section, label, kind="unseen")
        elif found := _LINE.match(text):
            cited = " ".join((*_INSIDE.findall(found["text"]), found[2]))
            yield SummaryClaim(found["text"], section, label, _parse_seqs(cited), kind)
        elif not _NOTHING.fullmatch(text):
            yield SummaryClaim(text, section, label, kind=kind)


def _is_preamble(text: str) -> bool:
    """Whether a first line only says that a summary follows."""
    return not text.startswith("#") and bool(_PREAMBLE.fullmatch(text)) and not _LINE.match(text)


def _find_title(line: str, text: str) -> str | None:
    """Return the title if a line is a heading or ends with a colon, else None."""
    title = _BULLET.sub("", text.strip("#*_: ：")).strip("*_ ")
    if line.startswith("#") or _BOLD.fullmatch(text) or text.endswith((":", "：")):
        return " ".join(title.split())
    return title if any(title.lower() == name.lower() for name in SECTIONS) else None


def _match_section(title: str) -> str:
    """Match a heading with ours: exactly, or by the words that tell which one it is."""
    low = title.lower()
    exact = (name for name in SECTIONS if name.lower() == low)
    is_short = len(low.split()) <= _TITLE
    near = (name for name, words in _NEAR.items() if is_short and re.search(words, low))
    return next(exact, "") or next(near, "")


def _drop_remarks(claims: list[SummaryClaim]) -> list[SummaryClaim]:
    """Drop the remarks before and after the lines, if there are any lines."""
    own = [at for at, claim in enumerate(claims) if claim.kind != "remark" or claim.seqs]
    return claims[own[0] : own[-1] + 1] if own else claims


def _split_claim(claim: SummaryClaim) -> Iterator[SummaryClaim]:
    """Split a line that cites nothing, or stands under none of our headings, into sentences."""
    if claim.kind == "unseen" or (claim.seqs is not None and claim.section):
        yield claim
        return
    text = claim.text.replace("**", "")
    starts = [0]
    for found in _STOP.finditer(text):
        rest = text[found.end() :].lstrip("\"'(`“„«")
        if (
            rest
            and not rest[0].islower()
            and not _ABBREVIATED.search(text[max(found.end() - 12, 0) : found.end()])
        ):
            starts.append(found.end())
    for number, (lo, hi) in enumerate(zip(starts, [*starts[1:], len(text)], strict=True)):
        sentence = text[lo:hi].strip()
        cited = (*(claim.seqs or ()), *_parse_seqs(" ".join(_INSIDE.findall(sentence))))
        plain = _LOOSE.sub(r"\1", _INSIDE.sub("", sentence)).strip()
        yield claim._replace(text=plain, seqs=cited or claim.seqs, goes_on=number > 0)


def _parse_seqs(text: str) -> tuple[int, ...]:
    """Parse the cited events; of a span, its two ends."""
    return tuple(dict.fromkeys(int(found) for found in _SEQ.findall(text)))
