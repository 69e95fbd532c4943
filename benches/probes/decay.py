"""How facts fade when folds are merged again and again, and a teller forgets some of what it tells.

Knows how to plant facts, and how to force one merging fold after another. Refuses to be kind: a
teller drops each line with a given chance.

Three ways to carry facts are counted after every fold. Retold: a summary that is written anew from
the last one each time, as compaction commonly is. Narrative: the lines of our folds, which are told
once, cite their events and are then carried. Handoff: all that stands in our folds' text, with the
user's words and the ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from foldline.core.budget import limits
from foldline.core.edits import fold
from foldline.core.log import Folded, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Text
from foldline.core.plan import Facts, Ready
from foldline.core.policy import STEADY, Policy, Tail
from foldline.core.spine import Range
from foldline.lab.policy_run import Planned, Teller

MERGING: Policy = replace(
    STEADY, name="merging", merging="all", priced=None, narrative=1_500, tail=Tail(groups=2)
)
"""The default's handoffs, with every fold merged into the one before."""
_WINDOW = 200_000
_LINES = 40  # of a result between two folds


@dataclass(frozen=True, slots=True)
class FactsLeft:
    """Shares of the planted facts that are left after so many folds."""

    folds: int
    retold: float
    narrative: float
    handoff: float


def measure_decay(
    seed: int, *, loss: float, folds: int = 16, facts: int = 20, policy: Policy = MERGING
) -> list[FactsLeft]:
    """What is left of some facts after each of several folds."""
    random = Random(seed)
    talk = Planned(Facts(limits(_WINDOW, None), policy))
    talk.add(UserSaid((Text("Audit the depots, one after the other."),)))
    values = [f"unit-{random.getrandbits(32):08x}" for _ in range(facts)]
    for number, value in enumerate(values):
        _add_fact(talk, number, value)
    teller, retold, found = Teller(policy.narrative, loss, seed), {*values}, list[FactsLeft]()
    for number in range(folds):
        _add_turns(talk, number, random)
        folded = _fold_before_tail(talk, teller)
        retold = {value for value in sorted(retold) if random.random() >= loss}
        told = "\n".join(line.text for line in folded.lines)
        found.append(
            FactsLeft(
                number + 1,
                len(retold) / facts,
                _measure_kept_share(values, told),
                _measure_kept_share(values, folded.text),
            )
        )
    return found


def _measure_kept_share(values: Sequence[str], text: str) -> float:
    return sum(value in text for value in values) / len(values)


def _add_fact(talk: Planned, number: int, value: str) -> None:
    """A fact, told by the user or by a result, in turn; agents do not repeat it."""
    if number % 2:
        talk.add(UserSaid((Text(f"The reference of depot {number} is {value}."),)))
        talk.add(ModelSaid((Text(f"Noted for depot {number}."),)))
        return
    _add_call(talk, f"plant_{number}", f"The reference of depot {number} is {value}.")


def _add_turns(talk: Planned, number: int, random: Random) -> None:
    """Some turns between two folds, with results of their own."""
    for turn in range(4):
        name = f"work_{number}_{turn}"
        lines = [f"{name} step_{n} took {random.randint(1, 999)} ms" for n in range(_LINES)]
        talk.add(UserSaid((Text(f"Go on with part {number} of depot {turn}."),)))
        _add_call(talk, name, "\n".join(lines))
        talk.add(ModelSaid((Text(f"Part {number}, {turn} is done."),)))


def _add_call(talk: Planned, name: str, result: str) -> None:
    arguments = f'{{"command": "./report {name}"}}'
    talk.add(ModelSaid((Text(f"Looking at {name}."), Call(name, "bash", arguments))))
    talk.add(ToolReturned(name, (Text(result),)))


def _fold_before_tail(talk: Planned, teller: Teller) -> Folded:
    """Ask for a narrative of what no fold has told yet, and fold everything but the tail."""
    cut = fold.find_cut_before_tail(talk.view, talk.facts.policy.tail)
    assert cut is not None, "there is more than the tail"
    span = Range(fold.choose_fold_start(talk.view, "sixth"), cut.seq - 1)
    told = teller.make_narrative(fold.Ask(talk.view.spine, span, teller.tokens), talk.events)
    made = talk.plan(replace(talk.facts, now=True, prepared=told))
    assert isinstance(made, Ready), "a short log fits"
    (folded,) = (event for event in made.events if isinstance(event, Folded))
    talk.ask(made)
    return folded
