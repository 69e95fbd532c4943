"""Hypothesis strategies for conversations. Needs the package `hypothesis`."""

from hypothesis import strategies as st

from foldline.dialects.base import list_dialects
from foldline.testing.logs import Conversation
from foldline.testing.play import LARGEST, NAMES, Step, play

_numbers = st.integers(0, LARGEST)


def scripts(*, longest: int = 60) -> st.SearchStrategy[list[Step]]:
    """Lists of steps, which shrink to few and small ones."""
    step = st.builds(Step, st.sampled_from(NAMES), _numbers, _numbers)
    # By a drawn least length: lists alone come out about six long, too short for edits on edits.
    return st.integers(1, longest).flatmap(
        lambda least: st.lists(step, min_size=least, max_size=longest)
    )


def conversations(*, longest: int = 60) -> st.SearchStrategy[Conversation]:
    """Whole conversations, played, in any dialect."""
    dialects = st.sampled_from(list_dialects())
    return st.builds(play, scripts(longest=longest), dialect=dialects, dialects=st.just(()))
