"""What running programs print: logs, stack traces, test runs."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from foldline.core.edits.structure.outline import Outline, iterate_in_turn, list_ends
from foldline.core.edits.structure.sample import Printed, Sample, is_fault
from foldline.core.names import format_count
from foldline.core.tokens import count_tokens

# All patterns are linear on any text: each begins at one place, and nothing in it can match twice.
_TIME = re.compile(
    r"[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d[,.\s\])]|\d{10}(?:\d{3})?[.\s\])]"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d/[A-Z][a-z]{2}/\d{4}|[IWEF]\d{4} \d\d:\d\d)"
    r"|\S{1,60} - - \[\d\d/|(?:time|ts)=\"?\d"
    r"|[\[(]?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b[\]):\s]"
)
_WARNING = re.compile(r"\b(?:WARN(?:ING)?|[Ww]arn(?:ing)?)\b|^W\d{4} ")
_SEVERE = re.compile(r"\b(?:CRITICAL|SEVERE|EMERG|ALERT|[Ff]ailed|error)\b|^[EF]\d{4} ")
_VARIABLE = re.compile(  # from the start of a word only: linear
    r"(?<![A-Za-z_-])(?:[A-Za-z_-]*\d[\w.:-]*|[0-9a-f]{8,}(?![A-Za-z_]))"
)
_MASKED = 300  # characters of a line that are compared with others
_BEHIND = 12  # lines behind an error that belong to it
_LOGGED = 0.6  # of the lines, that begin as those of a log do


def is_log(sample: Sample) -> bool:
    """Whether lines begin with a time or a level."""
    return sample.has_share(_TIME, _LOGGED)


def outline_log(printed: Printed, _tokens: int) -> Outline:
    """Every kind of error, then of warning, with one example; then the other kinds, rarest first.

    Lines are of one kind if they differ only in words that have digits: times, ids, numbers.
    """
    lines = printed.plain
    kinds = _sort_by_template(printed)
    errors: list[list[int]] = []
    warnings: list[int] = []
    others: list[int] = []
    for template, places in sorted(kinds.items(), key=lambda kind: (len(kind[1]), kind[1][0])):
        if is_fault(template) or _SEVERE.search(template):
            errors.append(places)
        else:
            (warnings if _WARNING.search(template) else others).append(places[0])

    def iterate_order() -> Iterator[int]:
        yield from list_ends(len(lines), 3, 6)
        for places in errors:
            yield places[0]
        yield from warnings
        for places in errors:
            yield from _iterate_behind(lines, places[0])
        yield from others
        yield from iterate_in_turn([places[:0:-1] for places in errors])

    return Outline(
        kind="log",
        pieces=printed.lines,
        order=iterate_order(),
        facts=(f"{len(kinds):,} kinds of lines",),
        notes={
            places[0]: f"{len(places):,} lines like the next"
            for places in kinds.values()
            if len(places) > 1 and _TIME.match(lines[places[0]])
        },
    )


def _sort_by_template(printed: Printed) -> dict[str, list[int]]:
    """Sort places by what their lines have in common."""
    letters = printed.text.encode("utf-8", "surrogatepass").translate(None, b"0123456789abcdef")
    alike: dict[bytes, list[int]] = {}
    for place, line in enumerate(letters.split(b"\n")[: len(printed.lines)]):
        alike.setdefault(line, []).append(place)
    kinds: dict[str, list[int]] = {}
    for places in alike.values():
        # The pattern is slow: lines that differ in nothing but digits are masked once.
        template = _VARIABLE.sub("*", printed.plain[places[0]][:_MASKED])
        kinds.setdefault(template, []).extend(places)
    for places in kinds.values():
        places.sort()
    return kinds


def _iterate_behind(lines: Sequence[str], place: int) -> Iterator[int]:
    """Yield the lines behind an error that have no time of their own: its stack."""
    for behind in range(place + 1, min(place + 1 + _BEHIND, len(lines))):
        if _TIME.match(lines[behind]):
            return
        yield behind


_CALL = (
    r"\s+at \S|\s+File \"[^\"]{1,400}\", line \d"  # Java and JS; Python
    r"|\t\S{1,400}\.(?:go|s):\d|\s+\d{1,4}: \S|\s+\.{3} \d+ more"  # Go; Rust
)
_CALLED = re.compile(_CALL)
_FRAME = re.compile(rf"{_CALL}|\s{{4,}}\S")  # and lines of code below
_CHAIN = re.compile(
    r"Traceback \(most recent|Caused by: |Suppressed: |(?:\S+ )?(?:During handling|The above exc)"
    r"|goroutine \d+ \[|panic: |thread '[^']*' (?:\(\d+\) )?panicked|stack backtrace:"
    r"|Exception in thread|(?:Uncaught )?[\w.$]{0,200}(?:Error|Exception)\b"
)
_GO_PLACE = re.compile(r"\t\S{1,400}\.(?:go|s):\d")
_CALLS, _FRAMES = 0.3, 0.4  # of the lines, that name a place, that are frames at all


def is_stack_trace(sample: Sample) -> bool:
    """Whether most lines are frames, below a line that says why."""
    has_calls = sample.has_share(_CALLED, _CALLS) and sample.has_share(_FRAME, _FRAMES)
    return has_calls and sample.has_line(_CHAIN)


def outline_stack_trace(printed: Printed, _tokens: int) -> Outline:
    """Messages and causes, then the first and last frames of each stack, then the others."""
    lines, plain = printed.lines, printed.plain
    stacks: list[list[int]] = [[]]
    said: list[int] = []
    for place, line in enumerate(plain):
        is_call = place + 1 < len(plain) and _GO_PLACE.match(plain[place + 1]) is not None
        if is_call or (line[:1].isspace() and _FRAME.match(line)):
            stacks[-1].append(place)
        elif line.strip():
            said.append(place)
            stacks += [[]] if stacks[-1] else []
    seen: set[str] = set()
    first = [place for place in said if plain[place] not in seen and not seen.add(plain[place])]

    def describe(lo: int, hi: int, _room: int) -> str:
        different = len({*plain[lo:hi]})
        return f"{different:,} different" if different < hi - lo else ""

    def iterate_order() -> Iterator[int]:
        yield from list_ends(len(lines))
        yield from first
        for stack in stacks:
            yield from stack[:4]
            yield from stack[-6:]
        yield from said

    return Outline(
        kind="stack trace", pieces=lines, order=iterate_order(), describe=describe, details=0.02
    )


_COUNTED = r"(?:=+ )?(?:\d+ \w+,? |no tests ran )+in \d"  # pytest
_SUMMARY = re.compile(
    rf"{_COUNTED}|Ran \d+ tests? in |FAILED \(\w+=|OK(?: \(.*\))?$"  # and unittest
    r"|test result: (?:ok|FAILED)\."  # cargo
    r"|(?:FAIL|ok)\s+\S+\s+(?:\d+\.\d+s|\(cached\)|\[)|(?:PASS|FAIL)$|exit status \d"  # go
    r"|\s*(?:Tests?|Test Suites|Test Files|Snapshots|Time|Duration)[: ].*\d"  # jest, vitest
)
_RUN = re.compile(
    rf"=+ test session starts =+$|{_COUNTED}|Ran \d+ tests? in \d|test result: (?:ok|FAILED)\. \d"
    r"|running \d+ tests?$|=== RUN |\s*--- (?:PASS|FAIL|SKIP): |(?:FAIL|ok)\s+\S+\s+\d+\.\d+s"
    r"|\s*(?:Tests?|Test Suites|Test Files):?\s+\d+ (?:passed|failed)"
)
# Where these letters stand, a failure begins if the pattern matches.
_BEGINNINGS = {
    "___": re.compile(r"(?m)(?<![^\n])_{3,} \S.* _{3,}$"),
    "FAIL": re.compile(r"(?<![^\n])FAIL: \S|(?<![^\n ])FAIL\s+\S{1,400} > |(?<=--- )FAIL: "),
    "ERROR: ": re.compile(r"(?<![^\n])ERROR: \S"),
    "---- ": re.compile(r"(?m)(?<![^\n])---- \S+ stdout ----$"),
    "● ": re.compile(r"(?<![^\n ])● \S"),
    "panic": re.compile(r"(?<![^\n])panic: |(?<=' )panicked at "),
}
_END = re.compile(
    r"=+ \S.* =+$|={20,}$|Ran \d|\s*--- (?:PASS|SKIP): |=== |failures:$|test result:"
    r"|test \S+ \.\.\. |(?:PASS|FAIL|ok)(?:\s|$)|Test Suites:|\s*Test Files|⎯{20,}"
)
_ROW = re.compile(  # pytest: a letter for each test
    r"(?m)^(?:\S{1,200} )?([.sxXFE]+)(?= *(?:\[ *\d|$))"
)
_FAILURES = {
    "FAIL": re.compile(r"(?<!\w)FAIL(?:ED|URE)?\b"),
    "ERR": re.compile(r"(?<!\w)ERR(?:OR|ORED)?\b"),
    "XPASS": re.compile(r"XPASS\b"),
    "ailed": re.compile(r"(?<=\b[Ff])ailed\b(?<!\b0 .ailed)"),
    "rror": re.compile(r"(?<=[Ee])rrors?\b(?<!\b0 .rrors)(?<!\b0 .rror)"),
    "Exception": re.compile(r"Exception\b"),
    "panicked": re.compile(r"panicked\b"),
    **dict.fromkeys("✕\u00d7✗", re.compile(".")),
}
_PASSES = {
    "PASS": re.compile(r"(?<!\w)PASS(?:ED)?\b"),
    "SKIP": re.compile(r"(?<!\w)SKIP(?:PED)?\b"),
    "XFAIL": re.compile(r"XFAIL\b"),
    "... ": re.compile(r"\.\.\. (?:ok|ignored|skipped)\b"),
    "ok": re.compile(r"(?<![^\n])ok\s"),
    "=== ": re.compile(r"(?<![^\n])=== (?:RUN|PAUSE|CONT)"),
    **dict.fromkeys("✓√✔", re.compile(".")),
}
_MORE = 32  # tokens, about half of what a clip needs besides
_BEGINS, _ENDS = 24, 8  # lines of each failure, before more of any


def is_test_run(sample: Sample) -> bool:
    """Whether it begins or ends as the output of a test runner does."""
    return sample.has_line(_RUN)


def outline_test_run(printed: Printed, tokens: int) -> Outline:
    """The summary, failures with their traces, whatever says that it failed; then all the rest.

    If the failures are too long for half of a clip, their names come first, then one after the
    other as far as there is room.
    """
    plain = printed.plain
    blocks = _list_failures(printed)
    inside = {place for block in blocks for place in block}
    rows = {printed.place_of(found.start()): found[1] for found in _ROW.finditer(printed.text)}
    failed = {place for place, row in rows.items() if not {*"FE"}.isdisjoint(row)}
    bad = sorted({*printed.find_lines(_FAILURES), *failed} - inside)
    good = {*printed.find_lines(_PASSES), *rows} - inside - {*bad}
    passed = [0, *accumulate(place in good for place in range(len(plain)))]
    traces = count_tokens("\n".join(printed.lines[place] for place in sorted(inside)))
    is_short = traces <= tokens // 2 + _MORE

    def describe(lo: int, hi: int, _room: int) -> str:
        count = passed[hi] - passed[lo]
        return f"{count:,} passed" if count else ""

    def iterate_order() -> Iterator[int]:
        ends = [
            place
            for place in list_ends(len(plain), 0, 40)
            if _SUMMARY.match(plain[place][:_MASKED])
        ]
        yield from reversed(ends[-8:])
        if is_short:
            yield from sorted(inside)
        yield from bad
        if len(bad) < len(blocks):  # else each is named by a line of its own
            yield from (block[0] for block in blocks)
        for block in blocks:
            yield from (*block[:_BEGINS], *block[-_ENDS:])
        yield from sorted(inside)
        other = [place for place in range(len(plain)) if place not in good]
        yield from reversed(other[-6:])
        yield from other
        yield from sorted(good)

    return Outline(
        kind="test run",
        pieces=printed.lines,
        order=iterate_order(),
        facts=(f"{format_count(len(good), 'line')} passed",) if good else (),
        describe=describe,
        details=0.03,
    )


def _list_failures(printed: Printed) -> list[list[int]]:
    """List the lines of each failure: from its title to the next title or the next section."""
    lines = printed.plain
    begins = printed.find_lines(_BEGINNINGS)
    blocks: list[list[int]] = []
    for begin, until in pairwise((*begins, len(lines))):
        inside = (place for place in range(begin + 1, until) if _END.match(lines[place][:_MASKED]))
        blocks.append([*range(begin, next(inside, until))])
    return blocks
