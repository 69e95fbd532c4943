"""Folding: the oldest span of a view becomes one handoff item, without a model."""

from foldline.core.edits.fold.handoff import Handoff, acknowledged, omitted, write
from foldline.core.edits.fold.moment import Cache, worthwhile
from foldline.core.edits.fold.source import draft, lacking
from foldline.core.edits.fold.span import (
    MOST_FOLDS,
    Span,
    fold,
    keeping,
    messages,
    proposals,
    taken_back,
    up_to,
    within,
)

__all__ = [
    "MOST_FOLDS",
    "Cache",
    "Handoff",
    "Span",
    "acknowledged",
    "draft",
    "fold",
    "keeping",
    "lacking",
    "messages",
    "omitted",
    "proposals",
    "taken_back",
    "up_to",
    "within",
    "worthwhile",
    "write",
]
