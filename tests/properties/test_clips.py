"""Laws of clips that know the structure of a text, and the broken variants that each must catch."""

import json
import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken
from printed_texts import KINDS, OTHERS

from foldline.agent.tools.edit_files import check_copied_markers
from foldline.core import recall
from foldline.core.edits.clip import clip_event
from foldline.core.log import Logged
from foldline.core.parts import text_of
from foldline.core.tokens import count_tokens
from foldline.errors import BadHandle, BadInput
from foldline.testing import calls, result, view_of

RUNS = sorted(name for name, (kind, _) in KINDS.items() if kind == "test run")
TITLE = re.compile(r"\[([a-z ]+): ([\d,]+) ([a-z]+?)s?, ([\d,]+) left out\]")
CUT = re.compile(r"\[cut: ([\d,]+) [a-z]+\b.*")
OURS = re.compile(
    r"\[(?:truncated: kept parts|whole: log:|cut: [\d,]+ |names in the cut\]|[a-z ]+: [\d,]+ [a-z]+, "
    r"|[\d,]+ (?:lines?|kinds|objects|items|numbers|files|commits|paths) |keys: |values: )"
)
BAD = re.compile(r"\b(?:FAIL|FAILED|ERROR|Error|error)\b|[✕✗]|^\.*F[.F]* \[")
GOOD = re.compile(r"\b(?:PASSED|PASS|ok)\b|✓|^\.{60} ")


def make_text(kind, seed, size):
    made = KINDS[kind][1] if kind in KINDS else OTHERS[kind]
    return made(Random(seed), size)


def clip(text, cap):
    return clip_event(result("c", text), cap=cap, how="ends")


def show(event):
    return text_of(view_of([calls("c"), event]).items[1].parts)


def drawn(kinds):
    return st.tuples(
        st.sampled_from(sorted(kinds)),
        st.integers(0, 9_999),
        st.integers(1, 900),
        st.integers(60, 4_000),
    )


def fits(kind, seed, size, cap):
    """It is at most its cap, and the same whenever it is made."""
    text = make_text(kind, seed, size)
    event = clip(text, cap)
    assert event == clip(text, cap)
    if event.clip is not None:
        assert count_tokens(show(event)) <= cap
        assert event.clip.shown <= cap


def states_what_is_kept(kind, seed, size, cap):
    """The marker's numbers are those of what stands there, and of the whole."""
    text = make_text(kind, seed, size)
    for how in ("ends", "head", "tail", "both"):
        event = clip_event(result("c", text), cap=cap, how=how)
        if event.clip is None:
            continue
        lines = show(event).split("\n")
        at = next(at for at, line in enumerate(lines) if line.startswith("[truncated: kept "))
        said, whole = (int(one) for one in re.findall(r"~(\d+)", lines[at]))
        kept = count_tokens("\n".join(lines[:at] + lines[at + 2 :]))
        assert abs(said - kept) <= 0.02 * kept + 8
        assert abs(whole - count_tokens(text)) <= 0.02 * whole


def is_counted(kind, seed, size, cap):
    """Every line is one of the text or ours; what is kept and what is counted make up the text."""
    text = make_text(kind, seed, size)
    event = clip(text, cap)
    if event.clip is None or "kept parts" not in show(event):
        return
    head, _, body = show(event).partition("]\n[whole: log:1; ok]\n")
    assert head.startswith("[truncated: ")
    left = Counter(text.split("\n"))
    title = TITLE.search(body)
    total, cut = (int(number.replace(",", "")) for number in title.group(2, 4))
    verbatim = stated = 0
    for line in body.split("\n"):
        if left[line]:
            left[line] -= 1
            verbatim += 1
        elif OURS.match(line):
            found = CUT.fullmatch(line)
            stated += int(found[1].replace(",", "")) if found else 0
        else:
            assert title[1] == "json", line
            assert line.strip(), "a blank line of its own"
            assert line in text, line
    assert stated == cut
    if title[3] in ("object", "item"):
        data = json.loads(text)
        assert total == len(data["items"] if isinstance(data, dict) else data)
        whole = [line for line in body.splitlines() if not OURS.match(line)]
        record = re.compile(r'"id": \d+|^\d+$')
        assert sum(len(record.findall(line)) for line in whole) == total - cut
    if title[3] == "line":
        assert total == len(text.split("\n")) - text.endswith("\n")
        assert verbatim + stated == total


def is_recallable(kind, seed, size, cap):
    """The marker, as it stands there, brings back the whole text."""
    text = make_text(kind, seed, size)
    event = clip(text, cap)
    if event.clip is not None:
        marker = re.search(r"\[truncated:.*\n\[whole: log:\d+; ok\]", show(event))[0]
        query = recall.parse_query(marker)
        assert (query.lo, query.hi) == (1, 1)
        assert recall.render_recall([Logged(1, event)], query) == text


def tells_failures(kind, seed, size, cap):
    """Failures are whole if they fit in half; nothing that failed is dropped for what passed."""
    text = make_text(kind, seed, size)
    event = clip(text, cap)
    if event.clip is None or "[test run: " not in (shown := show(event)):
        return
    lines, kept = text.splitlines(), {*shown.splitlines()}
    failed = [line for line in lines if BAD.search(line) and not GOOD.search(line)]
    passed = [line for line in lines if GOOD.search(line) and not BAD.search(line)]
    if any(line not in kept for line in failed):
        assert not [line for line in passed if line in kept]
    blocks = list_blocks(text)
    if blocks and count_tokens("\n".join(blocks)) + 4 * len(blocks) <= cap // 2:
        assert all(block in shown for block in blocks)
    assert lines[-1] in kept


ODD = re.compile(r"\.sql$|\bfailed\b|\bError\b|\bERROR\b")


def tells_outliers(kind, seed, size, cap):
    """What is unlike the others is kept before more of what is like them."""
    text = make_text(kind, seed, size)
    event = clip(text, cap)
    if event.clip is None or "kept parts" not in (shown := show(event)):
        return
    rows = [row.rstrip(",") for row in split_rows(text)]
    odd = [row for row in rows if ODD.search(row)]
    if len(odd) <= max(len(rows) // 20, 1) and any(row not in shown for row in odd):
        assert sum(row in shown for row in rows if not ODD.search(row)) <= 10


def tells_every_error(kind, seed, size, cap):
    """Every kind of error line is there before other lines; the ends are there anyway."""
    text = make_text(kind, seed, size)
    event = clip(text, cap)
    if event.clip is None or "[log: " not in (shown := show(event)):
        return
    kept = [line for line in shown.splitlines() if not OURS.match(line)]
    alike = Counter(tuple(line.split()[1:4]) for line in text.split("\n") if line[0] != " ")
    for times, line in re.findall(r"([\d,]+) lines like the next\]\n(.*)", shown):
        assert alike[tuple(line.split()[1:4])] == int(times.replace(",", ""))
    kinds = {tuple(line.split()[1:4]) for line in text.split("\n") if " ERROR " in line}
    told = {tuple(line.split()[1:4]) for line in kept if " ERROR " in line}
    if kinds - told:
        assert len([line for line in kept if " ERROR " not in line]) <= 9


def tells_causes(kind, seed, size, cap):
    """Messages and causes of a stack trace are there before more than the ends of its frames."""
    text = make_text(kind, seed, size)
    event = clip(text, cap)
    if event.clip is None or "[stack trace: " not in (shown := show(event)):
        return
    said = {line for line in text.split("\n") if line and not line[0].isspace()}
    kept = [line for line in shown.splitlines() if not OURS.match(line)]
    if said - {*kept}:
        assert len([line for line in kept if line[:1].isspace()]) <= 5


def names_every_file(kind, seed, size, cap):
    """Every file of a patch or a search is named before one has more lines than the others."""
    text = make_text(kind, seed, size)
    event = clip(text, cap)
    if event.clip is None or "kept parts" not in (shown := show(event)):
        return
    kept = [line for line in shown.splitlines() if not OURS.match(line)]
    if kind == "diff":
        files = {line for line in text.split("\n") if line.startswith("diff --git ")}
        if files - {*kept}:
            assert not [line for line in kept if line.startswith(("@@", "+++ "))]
    else:
        files = {line.partition(":")[0] for line in text.split("\n")}
        each = Counter(line.partition(":")[0] for line in kept)
        if files - {*each}:
            assert max(each.values()) <= 3


def names_every_path(kind, seed, size, _cap):
    """A status that is 2 % too long, of at least 2,880 tokens, names all its paths."""
    text = make_text(kind, seed, size)
    cap = count_tokens(text) * 98 // 100
    if cap > 2_880 and "kept parts" in (shown := show(clip(text, cap))):
        names = [line.rpartition("/")[2] for line in text.split("\n") if "src/" in line]
        assert all(name in shown for name in names)


def split_rows(text):
    """The rows of a table, or the objects of JSON as they are written."""
    return re.findall(r"\{[^{}]*\}", text[1:]) if text[0] in "[{" else text.split("\n")


BLOCK = re.compile(
    r"^_+ \S+ _+\n(?:.*\n)*?\S+: AssertionError$|^FAIL: .*\n-+\nTraceback.*\n.*\n.*\nAssertionError.*$"
    r"|^ FAIL  .*\nAssertionError.*\n ❯ .*$|^---- \S+ stdout ----\n(?:.+\n)+|^--- FAIL: .*\n    .*$|^  ● .*\n(?:.*\n){7}      at .*$",
    re.MULTILINE,
)


def list_blocks(text):
    return [found[0] for found in BLOCK.finditer(text)]


LAWS = {
    fits: [*KINDS, *OTHERS],
    is_counted: KINDS,
    states_what_is_kept: [*KINDS, *OTHERS],
    is_recallable: [*KINDS, *OTHERS],
    tells_failures: RUNS,
    tells_outliers: ["json", "json inside", "json lines", "csv", "columns", "find"],
    tells_every_error: ["log"],
    tells_causes: ["python trace", "java trace", "js trace", "rust trace"],
    names_every_file: ["diff", "grep"],
    names_every_path: ["git status", "short status"],
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law):
    @given(drawn(LAWS[law]))
    def holds(given):
        law(*given)

    holds()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_is_recognised(kind):
    shown = show(clip(make_text(kind, 1, 900), 1_500))
    assert f"[{KINDS[kind][0]}: " in shown
    assert 1_200 < count_tokens(shown) <= 1_500
    for law, kinds in LAWS.items():
        if kind in kinds:
            law(kind, 1, 900, 1_500)


def test_a_file_is_not_written_with_what_we_say_in_a_clip():
    """The file tools refuse our lines, each by itself."""
    shown = show(clip(make_text("pytest", 1, 900), 1_500)).splitlines()
    ours = [line for line in shown if line.startswith(("[cut: ", "[test run: "))]
    assert len(ours) > 2
    for line in ours:
        with pytest.raises(BadInput):
            check_copied_markers(f"a\n{line}\nb")


OUTLINE, OUTPUT, RECORDS, GIT, LISTS = (
    "foldline.core.edits.structure.outline",
    "foldline.core.edits.structure.program_output",
    "foldline.core.edits.structure.json_records",
    "foldline.core.edits.structure.git_output",
    "foldline.core.edits.structure.listings",
)
MUTANTS = [
    (fits, OUTLINE, "render(sorted(order[:middle]), {})) <= tokens:", "render(sorted(order[:middle]), {})) <= 2 * tokens:"),
    (is_counted, OUTLINE, "format_count(place - at, outline.noun)", "format_count(place - at - 1, outline.noun)"),
    (is_counted, OUTLINE, "            at = place + 1\n", "            at = max(at, place)\n"),
    (is_counted, OUTLINE, "        return piece\n", "        return piece.strip()\n"),
    (is_recallable, "foldline.core.item", "        seq, outcome=outcome,", "        seq + 1, outcome=outcome,"),
    (states_what_is_kept, "foldline.core.edits.clip", "~{count_parts(parts)} of", "~{keep} of"),
    (is_counted, RECORDS, "            lo, hi = first, last\n", "            lo, hi = first, last + 1\n"),
    (is_counted, RECORDS, "for lo, hi in spans]", "for lo, hi in spans[1:]]"),
    (tells_outliers, RECORDS, "        yield from _iterate_odd(found, keys)\n", ""),
    (tells_outliers, LISTS, "        yield from _iterate_odd_rows(rows)\n", "        yield from ()\n"),
    (tells_outliers, LISTS, "if ending in rare)", "if ending == 0)"),
    (tells_every_error, OUTPUT, "            yield places[0]\n", "            pass\n"),
    (tells_every_error, OUTPUT, "template = _VARIABLE.sub(", "template = _WARNING.sub("),
    (tells_causes, OUTPUT, "        yield from first\n", ""),
    (names_every_file, GIT, "        yield from starts\n", ""),
    (names_every_file, LISTS, "            iterate_in_turn(groups.values()),\n", "            chain(*groups.values()),\n"),
    (names_every_path, GIT, "details=0.7", "details=0.0"),
    (names_every_path, GIT, "for path in paths[lo:hi] if path]", "for path in paths[lo:hi] if 0]"),
    (tells_failures, OUTPUT, "        if is_short:\n", "        if False:\n"),
    (tells_failures, OUTPUT, "        yield from bad\n", "        yield from sorted(good)\n"),
    (tells_failures, OUTPUT, "        yield from reversed(ends[-8:])\n", ""),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(MUTANTS)))
def test_law_catches(index):
    law, module, line, instead = MUTANTS[index]

    def is_broken(seed):
        random = Random(seed)
        kinds = sorted(LAWS[law])
        try:
            law(random.choice(kinds), seed, random.randint(1, 900), random.randint(60, 4_000))
        except (AssertionError, BadHandle):
            return True
        return False

    with broken(module, line, instead):
        assert any(is_broken(seed) for seed in range(200))
