"""Folding: the oldest span of a view becomes one handoff item, without a model or with one."""

from foldline.core.edits.fold.ask import Ask, Prepared, Prompt, prompts, sources
from foldline.core.edits.fold.handoff import Handoff, Material, acknowledged, omitted, write
from foldline.core.edits.fold.loss import Loss, loss
from foldline.core.edits.fold.moment import Cache, Moment, worthwhile
from foldline.core.edits.fold.source import gather, lacking
from foldline.core.edits.fold.span import (
    MOST_FOLDS,
    Merging,
    Span,
    Why,
    beginning,
    excluded,
    fold,
    keeping,
    messages,
    proposals,
    taken_back,
    up_to,
    within,
)
from foldline.core.edits.fold.verify import Accepted, Rejected, Repair, Verdict, judge

__all__ = [
    "MOST_FOLDS",
    "Accepted",
    "Ask",
    "Cache",
    "Handoff",
    "Loss",
    "Material",
    "Merging",
    "Moment",
    "Prepared",
    "Prompt",
    "Rejected",
    "Repair",
    "Span",
    "Verdict",
    "Why",
    "acknowledged",
    "beginning",
    "excluded",
    "fold",
    "gather",
    "judge",
    "keeping",
    "lacking",
    "loss",
    "messages",
    "omitted",
    "prompts",
    "proposals",
    "sources",
    "taken_back",
    "up_to",
    "within",
    "worthwhile",
    "write",
]
