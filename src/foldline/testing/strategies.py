"""Hypothesis strategies for conversations. Needs the package `hypothesis`."""

from hypothesis import strategies as st

from foldline.testing import programs as proxied
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
    """Whole conversations, played."""
    return scripts(longest=longest).map(play)


def programs(*, longest: int = 20) -> st.SearchStrategy[proxied.Program]:
    """Programs of clients behind a proxy, which shrink to few steps."""
    names = [name for name, weight in proxied.ACTIONS.items() for _ in range(weight)]
    seeds = st.integers(0, (1 << 30) - 1)
    step = st.builds(proxied.Step, st.integers(0, 3), st.sampled_from(names), seeds)
    steps = st.integers(4, longest).flatmap(
        lambda least: st.lists(step, min_size=least, max_size=longest)
    )
    return st.builds(proxied.Program, seeds, steps.map(tuple))
