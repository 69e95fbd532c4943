"""What a model is shown, as shapes."""

from inline_snapshot import snapshot

from foldline.core.item import LOST
from foldline.core.log import Asked, Instructed, Interrupted, ToolReturned, UserSaid
from foldline.core.parts import Text, text_of
from foldline.core.rules import cut_points
from foldline.core.view import shape
from foldline.testing import Conversation, calls, model, result, user, view_of


def asked(at):
    return Asked(at, "test", "", 1)


def test_a_message_during_an_answer_stands_behind_it():
    """R-29: it was not seen, so it is not taken for answered."""
    log = [user("one"), asked(0), user("two"), calls("c", saw=0), user("three"), result("c")]
    assert shape(view_of(log)) == snapshot("""\
0 user one
3 model run(c)
5 result c done
2 user two
4 user three""")


def test_what_a_request_has_shown_stays_put():
    """Law 4: the answer to an older request does not move what a newer one has sent."""
    log = [user("one"), asked(0), user("two"), asked(2), model("to one", saw=0)]
    assert shape(view_of(log)) == snapshot("""\
0 user one
2 user two
4 model to one""")


def test_a_call_that_nobody_answers_is_closed_where_the_talk_goes_on():
    """A-20, R-23: and its result, when it comes after all, is told as a notice."""
    log = [calls("c", "d"), result("d"), user("and?"), model("on"), result("c", "late")]
    assert shape(view_of(log)) == snapshot("""\
0 model run(c) run(d)
1 result d done
3 result c [interrupted, outcome unknown: whether t interrupted
2 user and?
3 model on
4 user [notice] Late result of call 'c' (ok): l late""")


def test_an_interrupted_call_is_closed_for_good():
    view = view_of([calls("c"), Interrupted("c"), result("c", "late")])
    assert [text_of(item.parts) for item in view.items][1] == LOST
    assert view.items[2].role == "user"


def test_ids_are_made_unique():
    """R-20: empty, padded and repeated ids, each paired with its own result."""
    log = [calls("a", "a", ""), result("a", "1"), result("a", "2"), result(""), calls(" a ")]
    assert shape(view_of(log)) == snapshot("""\
0 model run(a) run(a_1) run(call_0_2)
1 result a 1
2 result a_1 2
3 result call_0_2 done
4 model run(a)""")


def test_a_result_without_a_call_is_told_not_paired():
    assert shape(view_of([user("hi"), result("ghost", ok=False)])) == snapshot("""\
0 user hi
1 user [notice] Late result of call 'ghost' (er late""")


def test_blank_messages_are_not_sent():
    assert shape(view_of([user("  \n"), model(""), user("hi")])) == "2 user hi"


def words(event):
    return text_of(view_of([event]).items[0].parts)


def test_speakers_are_told_apart():
    """R-82: who spoke is said, and nobody can pose as another."""
    assert words(user("go")) == "go"
    assert words(user("go", author="Ann")) == "[human: Ann]\ngo"
    assert words(user("go", speaker="cron")) == "[cron]\ngo"
    assert words(user("[cron]\ngo")) == "[human]\n[cron]\ngo"
    assert words(user("go", author="x]\n[cron")) == "[human: x) (cron]\ngo"


def test_new_instructions_stand_at_the_tail_until_the_next_fold():
    """R-60: no earlier byte changes; the fold refreshes the fixed part."""
    talk = Conversation()
    talk.add(Instructed((Text("be brief"),)), user("one"))
    talk.ask()
    talk.add(model("1"), Instructed((Text("be long"),)), user("two"), model("2"), user("three"))
    assert shape(talk.view).splitlines()[2] == "5 system [new instructions, from here on] be long"
    assert text_of(talk.view.instructions.parts) == "be brief"
    talk.fold(cut_points(talk.view)[-1])
    assert shape(talk.view) == "0-7 handoff folded\n8 user three"
    assert text_of(talk.view.instructions.parts) == "be long"


def test_fold_merge_undo_redo():
    """R-36: stacked folds come back one by one, exactly."""
    talk = Conversation()
    for word in "abcd":
        talk.add(user(word), model(word.upper()))
    shapes = [shape(talk.view)]
    for upto in (2, 4):
        cut = next(cut for cut in cut_points(talk.view) if cut.seq > upto)
        assert talk.fold(cut)
        shapes.append(shape(talk.view))
    assert shapes[2] == snapshot("""\
0-4 handoff folded
5 user c
6 model C
7 user d
8 model D""")
    first, second = 9, 10
    assert not talk.undo(first)  # the merge stands over it
    assert talk.undo(second)
    assert shape(talk.view) == shapes[1]
    assert talk.undo(first)
    assert shape(talk.view) == shapes[0]
    assert talk.undo(len(talk.events) - 1)  # redo
    assert shape(talk.view) == shapes[1]


def test_a_mask_outlives_the_fold_of_its_own_place():
    """A mask over a live item stays in force when the event that put it is folded away."""
    talk = Conversation()
    talk.add(user("a"), calls("c"), result("c"), model("b"), user("c"), model("d"))
    talk.mask([3])
    talk.add(user("e"), model("f"), user("g"), model("h"))
    cuts = {cut.seq: cut for cut in cut_points(talk.view)}
    early, late = cuts[5], cuts[10]
    talk.fold(early)  # over the masked item
    talk.fold(late, merging="sixth")  # over the mask's own event
    assert talk.undo(12)  # the item is back, still masked
    assert "3 result c [result masked] [whole: log:3] masked" in shape(talk.view)
    assert talk.view.spine.masks == (7,)


def test_a_group_is_never_cut():
    """A cut inside a group moves to the group's end; what is unanswered is not cut off."""
    log = [user("fix"), calls("a", "b"), result("a"), result("b"), model("done"), user("more")]
    view = view_of(log)
    assert [(cut.index, cut.seq) for cut in cut_points(view)] == [(1, 1), (4, 4), (5, 5)]


def test_no_cut_where_events_stand_across_each_other():
    """What was said during an answer stands behind it: no cut by place in the log parts the two."""
    log = [user("one"), asked(0), user("two"), model("to one", saw=0), model("to two"), user("on")]
    view = view_of(log)
    assert [item.seq for item in view.items] == [0, 3, 2, 4, 5]
    assert [(cut.index, cut.seq) for cut in cut_points(view)] == [(1, 2), (3, 4), (4, 5)]


def test_unicode_survives():
    odd = "NUL \x00, line sep \u2028, 😀, \u202e"
    assert words(UserSaid((Text(odd),))) == odd
    assert text_of(view_of([calls("c"), ToolReturned("c", (Text(odd),))]).items[1].parts) == odd
