"""Recall: A-15, R-37, R-55, R-57."""

import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldline.core import recall
from foldline.core.edits.clip import clip_event
from foldline.core.edits.fold import handoff
from foldline.core.edits.mask import list_results, mask_results
from foldline.core.log import Folded, Logged, Opened, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Media, Text, text_of
from foldline.core.recall import Grep, HeadLines, LineRange, Query, TailLines, Whole
from foldline.core.spine import Change, Range, Spine
from foldline.core.tokens import count_tokens
from foldline.errors import BadHandle
from foldline.testing import calls, result, user, view_of


def one(text, seq=12):
    return [Logged(seq, result("c", text))]


def ask(text, words, most=None):
    return recall.render_recall(one(words), recall.parse_query(text), most=most)


# What models write.


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("log:12", Range(12, 12)),
        (" [log:12] ", Range(12, 12)),
        ("`log:12`", Range(12, 12)),
        ("12", Range(12, 12)),
        ("log:3-40", Range(3, 40)),
        ("log:3-log:40", Range(3, 40)),
        ('recall("log:12")', Range(12, 12)),
        ("recall('log:3-9')", Range(3, 9)),
        ("s.recall(log:12)", Range(12, 12)),
        ('recall(handle="log:12")', Range(12, 12)),
        ("[whole: log:12; ok]", Range(12, 12)),
        ("[whole: log:12; error]", Range(12, 12)),
        ("[whole: log:3-9]", Range(3, 9)),
        ("[cut; whole: log:12]", Range(12, 12)),
        ("[handoff: log:0-9 was folded]", Range(0, 9)),
        ("[log:12 tool_returned]", Range(12, 12)),
        ("log:12: ran the tests, 3 failed", Range(12, 12)),
    ],
)
def test_a_handle_as_a_model_may_write_it(text, span):
    assert recall.parse_query(text) == Query(span)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ('recall("log:12", tail=40)', TailLines(40)),
        ('recall("log:12",head=4)', HeadLines(4)),
        ('recall("log:12", lines=(181, 360))', LineRange(181, 360)),
        ('recall("log:12", lines=[181,360], start=7)', LineRange(181, 360, 7)),
        ('recall("log:12", lines="181-360")', LineRange(181, 360)),
        ("recall('log:12', grep=\"err.*\", around=2)", Grep("err.*", 2)),
        (r'recall("log:12", grep="a\d\"b")', Grep(r'a\d"b')),
        (r"recall('log:12', grep=r'it\'s (\w+)', skip=9)", Grep(r"it's (\w+)", skip=9)),
        (
            '[lines 1-180 of 4,210; go on: recall("log:12", lines=(181, 4210))]',
            LineRange(181, 4210),
        ),
        ('Peek: recall("log:12", grep="recall(x)").', Grep("recall(x)")),
    ],
)
def test_ways_to_look_as_a_model_may_write_them(text, way):
    """A-15: head, tail, lines and grep by id."""
    assert recall.parse_query(text) == Query(Range(12, 12), way)


@pytest.mark.parametrize(
    "text",
    [
        "", "log:", "log:x", "log:9-3", "log:-1", "12; drop", "9" * 40, "log:12; drop", "1\n2",
        'recall("log:N")', "recall(", 'recall("log:12"', 'recall("log:12", tail=)',
        'recall("log:12", tail=-1)', 'recall("log:12", tail=0)', 'recall("log:12", lines=(9, 3))',
        'recall("log:12", lines=(0, 3))', 'recall("log:12", lines=5)', 'recall("log:12", nose=3)',
        'recall("log:12", head=3, tail=3)', 'recall("log:12", grep="")', 'recall("log:12", grep=3)',
        'recall("log:12", around=3)', 'recall("log:12", head=3, start=3)', "[log:1 and log:2]",
        'recall("log:9-3")', "log:12 " * 2_000,
    ],
)  # fmt: skip
def test_what_is_no_handle_says_what_to_write(text):
    """R-37: the thing, and the way out, in a few words."""
    with pytest.raises(BadHandle, match=r"write .*(log:\d|=)") as fault:
        recall.parse_query(text)
    assert len(str(fault.value)) < 500


patterns = st.text("ab\\\"'()[]*. é\n=,", min_size=1, max_size=12)
numbers = st.integers(1, 10**17)
ways = st.one_of(
    st.just(Whole()),
    st.builds(HeadLines, numbers),
    st.builds(TailLines, numbers),
    st.tuples(numbers, numbers, numbers).map(lambda n: LineRange(min(n[:2]), max(n[:2]), n[2])),
    st.builds(Grep, st.text("ab\"'()[]*. é=,", min_size=1), numbers, numbers),
)


@given(numbers, st.integers(0, 1_000), ways)
def test_a_call_reads_back_as_it_was_written(lo, more, way):
    """R-37: every call that we write is one that we read."""
    asked = Query(Range(lo, lo + more), way)
    assert recall.parse_query(recall.render_call(asked)) == asked


@given(patterns)
def test_a_pattern_with_backslashes_keeps_its_meaning(pattern):
    """Written again and again it is one line, and the same from the first time on."""
    if pattern.endswith("\\"):
        pattern += "."
    written = recall.render_call(Query(Range(1, 1), Grep(pattern)))
    assert "\n" not in written
    again = recall.render_call(recall.parse_query(written))
    assert recall.render_call(recall.parse_query(again)) == again


@pytest.mark.parametrize(
    "text",
    ["[" * 4_000, "log:1" * 800, 'recall("log:1"' + ", a=1" * 700, "recall(" + " " * 3_900,
     'recall("log:1", grep="' + "\\" * 3_900, "recall('log:1'" + " " * 3_900, "1" + " " * 3_990 + "x",
     "[" + "log:1- log:2-" * 300 + "]"],
)  # fmt: skip
def test_no_text_takes_long_to_read(text, timed):
    start = time.perf_counter()
    with pytest.raises(BadHandle):
        recall.parse_query(text)
    assert time.perf_counter() - start < timed(0.2)


# The hints that Foldline writes.


@pytest.mark.parametrize("how", ["head", "tail", "both", "ends", "lines"])
@pytest.mark.parametrize("ok", [True, False])
def test_the_hint_of_a_clip_returns_the_item(how, ok):
    """R-37: its second line, executed; and the marker as a whole."""
    words = "\n".join(f"line {n}" for n in range(3_000))
    log = [user("go"), calls("c"), clip_event(result("c", words, ok=ok), cap=500, how=how)]
    lines = text_of(view_of(log).items[2].parts).splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith("[whole: "))
    for hint in (lines[place], "\n".join(lines[place - 1 : place + 1])):
        asked = recall.parse_query(hint)
        assert recall.render_recall(enumerated(log), asked) == words


def test_the_hint_of_a_stub_returns_the_item():
    """R-37: also where the words that it began with look like another handle."""
    words = 'recall("log:1") log:7 ' + "output " * 500
    log = [user("go"), calls("c"), result("c", words)]
    view = view_of(log)
    view.append(3, mask_results(view, list_results(view, turn_only=True)))
    stub = text_of(view.items[2].parts)
    for hint in (stub, stub.splitlines()[1]):
        assert recall.render_recall(enumerated(log), recall.parse_query(hint)) == words


def test_the_hints_of_handoffs_return_what_was_folded():
    """R-37: the notice of a fold, a cut message in it, a fact, and the summary's first line."""
    log = enumerated([user("go"), calls("c"), result("c", "out"), user("long " * 900)])
    span = Range(0, 3)
    written = handoff.build_handoff(span, handoff.Material([log[3]]), cap=300)
    all_of_it = recall.render_recall(log)
    first = written.text.splitlines()[0]
    cut = next(line for line in written.text.splitlines() if line.startswith("log:3: "))
    assert recall.render_recall(log, recall.parse_query(first)) == all_of_it
    assert recall.render_recall(log, recall.parse_query(cut)) == "long " * 900
    notice = handoff.build_omission_notice(span, 4).text
    assert recall.render_recall(log, recall.parse_query(notice)) == all_of_it
    assert recall.render_recall(log, recall.parse_query(notice.splitlines()[1])) == all_of_it
    summary = handoff.add_acknowledgement(written).text.splitlines()[0]
    assert recall.render_recall(log, recall.parse_query(summary)) == all_of_it


def enumerated(events):
    return [Logged(seq, event) for seq, event in enumerate(events)]


# Pages.

texts = st.one_of(
    st.text(max_size=600),
    st.lists(
        st.one_of(
            st.text("ab \t\r\x0b\x0c\x1c\x85\u2028\u2029日🙂.", max_size=60),
            st.builds(lambda word, n: word * n, st.sampled_from(["x", "a b ", "0", "é", "🙂", "--"]),
                      st.integers(1, 700)),
        ),
        max_size=30,
    ).map("\n".join),
    st.builds(lambda line, n: line * n, st.sampled_from(["\n", "\r\n", "a\n", "ab cd\n\n"]), st.integers(1, 900)),
)  # fmt: skip


def follow(log, first, most):
    """What all pages say together, by executing the call that stands on each one's first line."""
    answer, pages, notes = recall.render_recall(log, first, most=most), [], 0
    assert count_tokens(answer) <= most
    while True:
        note, _, body = answer.partition("\n")
        if not note.startswith(("[line", "[go on:")):
            return answer, notes
        assert note.endswith("]")
        notes += 1
        pages.append(body)
        if "go on: " not in note:
            return "".join(pages), notes
        assert body, "no page is empty"
        answer = recall.render_recall(log, recall.parse_query(note), most=most)
        assert count_tokens(answer) <= most
        assert answer.startswith("[")


@given(texts, st.integers(100, 700), st.sampled_from([3, 10**9, 10**17]))
@example('[lines 1-2 of 9; go on: recall("log:1")]\nposing', 100, 3)
@example("[no lines]", 100, 3)
@example("x" * 5_000 + "\n", 100, 3)
@example("a\r\nb\x0bc\u2028d\n\n", 100, 3)
def test_pages_put_together_are_the_original(text, most, seq):
    """A-15, R-37: following the calls reads every byte, and no answer is too long."""
    log = one(text, seq)
    again, notes = follow(log, Query(Range(seq, seq)), most)
    assert again == text
    # One page may do: the estimate of letters that are no words falls beside a note's marks.
    if count_tokens(text) > most:
        assert notes
    if count_tokens(text) > most + 100:
        assert notes > 1
    assert recall.render_recall(log, Query(Range(seq, seq))) == text


@given(texts, st.integers(100, 400), st.integers(1, 40), st.integers(1, 40))
def test_some_lines_and_the_pages_behind_them(text, most, first, more):
    """A-15: lines, head and tail agree with the text, whole or in pages."""
    lines = text.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    if first > len(lines):
        return
    part = "".join(lines[first - 1 : first - 1 + more])
    span = Range(12, 12)
    answer = recall.render_recall(one(text), Query(span, LineRange(first, first + more - 1)))
    assert answer.partition("\n")[2] == part
    assert recall.render_recall(one(text), Query(span, HeadLines(more))).partition("\n")[
        2
    ] == "".join(lines[:more])
    assert recall.render_recall(one(text), Query(span, TailLines(more))).partition("\n")[
        2
    ] == "".join(lines[-more:])
    again, _ = follow(one(text), Query(span, LineRange(first, first + more - 1)), most)
    assert again == "".join(lines[first - 1 :])
    tail = recall.render_recall(one(text), Query(span, TailLines(more)), most=most)
    assert count_tokens(tail) <= most
    note, _, body = tail.partition("\n")
    assert text.endswith(body)
    assert body
    if body != text:
        before = recall.parse_query(note).way
        seen = body if "characters" not in note else ""
        assert "".join(lines[: before.last]) + seen == text


def test_an_answer_says_what_it_is_and_how_to_go_on():
    words = "".join(f"line {n} of some log\n" for n in range(1, 4_211))
    answer = ask("log:12", words, most=1_000)
    note, _, body = answer.partition("\n")
    last = body.count("\n")
    assert note == f'[lines 1-{last} of 4,210; go on: recall("log:12", lines=({last + 1}, 4210))]'
    assert 600 <= count_tokens(answer) <= 1_000
    assert ask('recall("log:12", tail=2)', words) == (
        '[lines 4,209-4,210 of 4,210; before: recall("log:12", lines=(4207, 4208))]\n'
        "line 4209 of some log\nline 4210 of some log\n"
    )
    assert ask('recall("log:12", lines=(4210, 5000))', words) == (
        "[line 4,210 of 4,210]\nline 4210 of some log\n"
    )
    long = ask("log:12", "word " * 9_000, most=200)
    assert long.startswith("[line 1 of 1, characters 1-")
    assert 'of 45,000; go on: recall("log:12", lines=(1, 1), start=' in long
    assert ask('recall("log:12", head=2)', "") == "[no lines]"


def test_a_bounded_answer_is_not_marked_where_all_of_it_fits():
    assert ask("log:12", "short", most=100) == "short"
    assert ask("log:12", "", most=100) == ""


def test_places_that_are_not_there():
    with pytest.raises(BadHandle, match=r"there are 1 lines; write"):
        ask('recall("log:12", lines=(7, 9))', "a")
    with pytest.raises(BadHandle, match=r"line 1 has 1 characters"):
        ask('recall("log:12", lines=(1, 9), start=2)', "a")
    with pytest.raises(BadHandle, match=r"no room for an answer; give 100"):
        ask("log:12", "a", most=99)
    with pytest.raises(BadHandle, match="open end"):
        Query(Range(3))


# Grep.

LOG = "start\nok\nfirst error\nok\nok\nok\nsecond Error: 日本 err\nend\n"


def test_grep_shows_lines_with_numbers_and_what_is_around():
    """A-15: grep by id."""
    assert ask('recall("log:12", grep="err")', LOG) == (
        "[matches 1-2 of 2]\n3: first error\n--\n7: second Error: 日本 err"
    )
    assert ask("recall('log:12', grep='(?i)^second error: \\S+ e', around=1)", LOG) == (
        "[match 1 of 1]\n6- ok\n7: second Error: 日本 err\n8- end"
    )
    assert ask('recall("log:12", grep="ok", around=1)', LOG).count("--") == 0
    assert ask('recall("log:12", grep="nothing")', LOG).startswith("[no match in 8 lines;")
    assert "after the first 9" in ask('recall("log:12", grep="err", skip=9)', LOG)


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [("^$", [2, 4]), ("x*", [1, 2, 3, 4]), (r"a\sb", []), ("[^z]+b", []), ("a$", [1]), (r"(?s)a.+b", []),
     (r"\bb", [3]), ("a\nb", [])],
)  # fmt: skip
def test_grep_never_matches_across_lines(pattern, lines):
    answer = recall.render_recall(one("a\n\nb\n\n"), Query(Range(12, 12), Grep(pattern)))
    assert [int(line.split(":")[0]) for line in answer.splitlines()[1:] if line != "--"] == lines


def test_grep_over_several_events_names_each():
    log = [Logged(3, user("find the err")), Logged(4, UsageReported()), Logged(5, result("c", LOG))]
    assert recall.render_recall(log, recall.parse_query('recall("log:3-5", grep="err")')) == (
        "[matches 1-3 of 3]\n[log:3 user_said]\n1: find the err\n"
        "[log:5 tool_returned]\n3: first error\n--\n7: second Error: 日本 err"
    )


@given(
    st.lists(
        st.sampled_from(["hit", "no", "", "long " * 300 + "hit", "🙂" * 500 + "hit"]), max_size=80
    ),
    st.integers(100, 400),
    st.integers(0, 3),
)
def test_grep_in_pages_finds_every_match_once(lines, most, around):
    """R-37: bounded, and what is left has its count and its call."""
    found, asked = [], Query(Range(12, 12), Grep("hit", around))
    expected = [n for n, line in enumerate(lines, 1) if "hit" in line]
    while True:
        answer = recall.render_recall(one("\n".join(lines)), asked, most=most)
        assert count_tokens(answer) <= most
        note, *shown = answer.splitlines()
        found += [int(line.split(":")[0]) for line in shown if line.split(":")[0].isdigit()]
        if "go on" not in note:
            break
        assert f" of {len(expected)};" in note
        asked = recall.parse_query(note)
    assert found == expected


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*b", "(a*)*c"])
def test_no_pattern_takes_long(pattern, timed):
    """1 MB and a pattern that would take `re` for ever."""
    log = one("a" * 1_000_000 + "!")
    recall.render_recall(one("a"), Query(Range(12, 12), Grep("warm")))
    start = time.perf_counter()
    answer = recall.render_recall(log, Query(Range(12, 12), Grep(pattern)), most=500)
    assert time.perf_counter() - start < timed(1.0)
    assert answer.startswith("[no match")


def test_a_pattern_that_matches_everywhere_is_not_counted_for_ever(timed):
    start = time.perf_counter()
    answer = recall.render_recall(one("\n" * 1_000_000), Query(Range(12, 12), Grep("^")), most=200)
    assert time.perf_counter() - start < timed(1.0)
    assert " of 10,000 or more; go on: " in answer


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=a)", "look ahead or behind"),
        ("(?<!a)b", "look ahead or behind"),
        (r"(a)\1", "references back"),
        ("a{1001}", "repeats count to 1,000"),
        ("a**", "cannot be repeated"),
        ("(", "backslash before"),
        ("[a", "backslash before"),
        ("((a{99}){99}){99}", "1,000"),
    ],
)
def test_a_pattern_that_is_refused_says_what_to_write(pattern, words, capfd):
    with pytest.raises(BadHandle, match="write") as fault:
        recall.render_recall(one("a"), Query(Range(12, 12), Grep(pattern)))
    assert words in str(fault.value)
    assert recall.render_call(Query(Range(12, 12), Grep(pattern))) in str(fault.value)
    assert capfd.readouterr() == ("", "")


def test_a_pattern_that_leaves_no_room_is_refused():
    asked = Query(Range(12, 12), Grep("a|" + "b_1|" * 200))
    with pytest.raises(BadHandle, match="shorter pattern"):
        recall.render_recall(one("a\na\n"), asked, most=100)


def test_nobody_waits_for_re2_who_does_not_grep():
    code = "import sys, foldline; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Events.


def test_one_event_is_shown_as_it_was_and_several_each_under_its_handle():
    log = [Logged(4, user("hello")), Logged(5, calls("c")), Logged(6, result("c", "out"))]
    assert recall.render_recall(log[:1]) == "hello"
    assert recall.render_recall(log) == (
        '[log:4 user_said]\nhello\n[log:5 model_said]\nrun {"n":"c"}\n[log:6 tool_returned]\nout'
    )
    assert recall.render_recall(log, recall.parse_query("log:5")) == 'run {"n":"c"}'
    again, notes = follow([*log, *one("x\n" * 400, 7)], recall.parse_query("log:4-7"), 120)
    assert notes > 1
    assert again == recall.render_recall([*log, *one("x\n" * 400, 7)])


def test_events_that_say_nothing_are_named():
    log = [Logged(0, Opened("m")), Logged(1, UsageReported())]
    assert recall.render_recall(log) == "[log:0 opened: no words]\n[log:1 usage_reported: no words]"
    assert (
        recall.render_recall(log, recall.parse_query("log:1"), most=100)
        == "[log:1 usage_reported: no words]"
    )
    assert recall.render_recall(log, recall.parse_query('recall("log:1", grep="x")')).startswith(
        "[no match in 0"
    )


def test_a_fold_in_the_span_says_its_text():
    fold = Folded("[handoff: log:0-3 was folded]\nfacts", Change(Range(0, 3)), Spine())
    assert recall.render_recall([Logged(4, fold)], recall.parse_query("log:4")) == fold.text
    assert "[log:4 folded]\n[handoff: " in recall.render_recall([Logged(4, fold), *one("out", 5)])


def test_media_are_whole_or_named():
    """R-57: 5 MB of base64 fill no answer, and come back whole where nothing bounds it."""
    picture = Media("image", mime="image/png", base64="QUJD" * 1_250_000, name="a.png")
    linked = Media("image", url="https://example.org/b.png")
    log = [Logged(2, UserSaid((Text("look"), picture, linked)))]
    named = "look\n[image a.png image/png 3,750,000 bytes]\n[image https://example.org/b.png]"
    assert recall.render_recall(log, recall.parse_query("log:2"), most=100) == named
    assert recall.render_recall(log, recall.parse_query('recall("log:2", grep="QUJD")')).startswith(
        "[no match"
    )
    assert picture.base64 in recall.render_recall(log, recall.parse_query("log:2"))
    padded = Logged(3, ToolReturned("c", (Media("file", mime="a/b", base64="QQ=="),)))
    assert recall.render_recall([padded], recall.parse_query("3"), most=100) == "[file a/b 1 bytes]"


def test_what_is_missing_is_named_and_never_left_out_silently():
    """R-55: a handle of another session names places that are not here."""
    log = [Logged(3, user("a")), Logged(5, result("c", "b"))]
    span = Range(2, 9)
    assert recall.list_missing_ranges(span, log) == (Range(2, 2), Range(4, 4), Range(6, 9))
    assert recall.list_missing_ranges(Range(3, 3), log) == ()
    assert recall.render_recall(log, Query(span)) == (
        "[log:2: not in this session's log]\n[log:3 user_said]\na\n"
        "[log:4: not in this session's log]\n[log:5 tool_returned]\nb\n"
        "[log:6-9: not in this session's log]"
    )
    with pytest.raises(BadHandle, match="log:99 is not in this session's log"):
        recall.render_recall(log, recall.parse_query("log:99"))
    assert "ends at 5; write log:0-5" in str(recall.make_missing_error(Range(9, 9), end=5))
    assert "no longer" in str(recall.make_missing_error(Range(4, 4), end=5))
    assert "is empty" in str(recall.make_missing_error(Range(4, 4), end=-1))


def test_grep_searches_originals_and_not_the_handoffs_that_repeat_them():
    folded = Folded("port is 8080 …", Change(Range(0, 0)), Spine())
    log = [Logged(0, user("port is 8080, and nothing else")), Logged(1, folded)]
    query = recall.parse_query('recall("log:0-1", grep="port")')
    answer = recall.render_recall(log, query)
    assert "nothing else" in answer
    assert "8080 …" not in answer
    alone = recall.render_recall(log[1:], recall.parse_query('recall("log:1", grep="port")'))
    assert "8080 …" in alone
