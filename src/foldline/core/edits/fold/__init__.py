"""Folding: the oldest span of a view becomes one handoff item, without a model or with one.

`verify`, which judges what a model told, is imported by whoever asks one: few sessions do.
"""

from foldline.core.edits.fold.ask import Ask, Prepared, Prompt, behind, prompts, sources
from foldline.core.edits.fold.fold_pricing import Cache, Moment, cached, worthwhile
from foldline.core.edits.fold.handoff import (
    NARRATIVE,
    Handoff,
    Material,
    acknowledged,
    omitted,
    write,
)
from foldline.core.edits.fold.loss import Loss, loss
from foldline.core.edits.fold.source import gather, lacking
from foldline.core.edits.fold.span import (
    MOST_FOLDS,
    Merging,
    Span,
    Why,
    beginning,
    fold,
    hidden,
    keeping,
    messages,
    proposals,
    taken_back,
    up_to,
    within,
)

__all__ = [
    "MOST_FOLDS",
    "NARRATIVE",
    "Ask",
    "Cache",
    "Handoff",
    "Loss",
    "Material",
    "Merging",
    "Moment",
    "Prepared",
    "Prompt",
    "Span",
    "Why",
    "acknowledged",
    "beginning",
    "behind",
    "cached",
    "fold",
    "gather",
    "hidden",
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
