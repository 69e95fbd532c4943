"""A session is never stuck and never invalid, whatever happens to it; and the variants that this must catch."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken
from session_programs import LARGEST, NAMES, Refused, play, steps

from foldline.errors import FoldlineError
from foldline.testing.play import Step

sizes = st.integers(0, LARGEST)
programs = st.lists(st.builds(Step, st.sampled_from(NAMES), sizes, sizes), min_size=2, max_size=30)


@given(programs)
def test_every_request_is_taken(program):
    """Law 2 over whole lives of sessions: adds, crashes, undo, pins, switches, restarts."""
    asyncio.run(play(program))


PLAN, ROW, PLANNING = "foldline.core.plan", "foldline.core.row", "foldline.session.planning"
FACTS, WRITE = "foldline.session.model_facts", "foldline.dialects.anthropic.write"
ARGUMENTS = "foldline.session.arguments"
MUTANTS = [
    # Thinking: lost at a fold in a loop, kept where it is bound, asked for where it cannot be.
    (PLAN, "case ModelSaid(parts) if not facts.binds_thinking:", "case ModelSaid(parts) if False:"),
    (FACTS, "binds_thinking(model)\n    return", "False\n    return"),
    (WRITE, "first = None if kinds[:1] and kinds[0] in THOUGHTS else at", "first = None"),
    (WRITE, "and budget >= most", "and False"),
    # How a request ends once an edit took away what stood behind the answer.
    (PLANNING, "if said and not notice:", "if False:"),
    # Stuck: a closed call that no fold may take, newest messages that nothing cuts.
    (PLAN, "if facts.policy.folds and (\n", "if False and (\n"),
    # A server that does not count.
    (ARGUMENTS, "said < least", "said < 1"),
]  # fmt: skip
NAMED = [f"{module.rsplit('.')[-1]}-{index}" for index, (module, *_) in enumerate(MUTANTS)]
SOON = {"plan-0": 13, "planning-4": 16, "plan-5": 41}
"""Seeds that catch a variant at once; where the generator changes it is only slower."""


CLIP, SELECTION = "foldline.core.edits.clip", "foldline.core.fold_selection"
BUDGET = "foldline.core.budget"
STUCK = {
    # A closed call that stays unsettled leaves no cut before the message behind it.
    "closed call": ("user 2 7, user 2 11, crash 1 11", ROW, "shown), last=self.tops[-1])", "shown))"),
    # Fair shares, beside a fold that is larger than the least, are still too much.
    "what is missing": ("user 6 0, large 4 10, ask 0 4, large 4 9", PLAN, "if again else 0", "if False else 0"),
    # A fold that fits only beside a message that is cut as far as any.
    "the least share": ("user 6 0, large 4 9, loop 1 9", CLIP, "_LEAST_SHARE and not over:", "_LEAST_SHARE:"),
    # Results that fit only cut as far as any text goes.
    "the least clip": ("loop 7 5, large 4 10, instruct 11 9, ask 7 8, result 4 6", CLIP, "_LEAST_CLIP if over else _LEAST_SHARE", "_LEAST_SHARE"),
    # A fold that is small enough by its estimate, and not by the model's own count.
    "the count that decides": ("result 3 6, large 6 0, ask 11 2, loop 2 11, ask 6 8", SELECTION, "and is_enough(view, event, facts.limits):", ":"),
    # A fold by hand that takes new instructions into the fixed part, and makes too large what fits.
    "a fold by hand": ("ask 4 5, user 7 0, crash 1 5, instruct 3 3, fold 4 5", PLAN, "if fits and isinstance(edit, Folded)", "if False and isinstance(edit, Folded)"),
    # A model that counts what came last otherwise than what came before.
    "far off again": ("result 3 2, loop 3 8, large 1 6, tools 1 6, ask 0 5, ask 11 4, result 6 9, ask 3 6, user 2 5, ask 2 11, loop 10 0, ask 8 0, crash 5 4, again 0 10, steer 10 0", BUDGET, "int(plain * max(known, 0))", "int(plain * _KNOWN_BETTER * min(len(errors), 3))"),
    # Messages that nobody has answered are folded with the same care as what was answered.
    "unanswered in doubt": ("user 7 0, begun 4 6, loop 9 0, user 8 2, large 7 2, crash 6 4, large 0 8, large 9 9, steer 6 10, steer 7 5, doubled 4 0, large 11 7", PLAN, "edit = _find_safe_fold(view, budget, facts, unanswered=True)", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", STUCK)
def test_what_can_be_made_smaller_is_not_refused(name):
    """Programs that were stuck, the last request asked at their end; and the variant that is again."""
    written, *mutant = STUCK[name]
    words = (step.split() for step in written.split(","))
    program = [Step(kind, int(a), int(b)) for kind, a, b in words]
    asyncio.run(play(program))
    with broken(*mutant), pytest.raises(Refused):
        asyncio.run(play(program))


@pytest.mark.parametrize("name", NAMED)
def test_a_broken_session_is_caught(name):
    """Each variant is refused by the provider, or stuck, in some program."""

    def is_caught(number):
        try:
            asyncio.run(play(steps(Random(number), 20 + number % 21)))
        except (Refused, FoldlineError):
            return True
        return False

    first = SOON.get(name, 0)
    with broken(*MUTANTS[NAMED.index(name)]):
        assert any(is_caught(number) for number in range(first, first + 400))
