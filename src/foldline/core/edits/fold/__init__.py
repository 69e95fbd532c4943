"""Folding: the oldest span of a view becomes one handoff item, without a model."""

from foldline.core.edits.fold.handoff import Handoff, write
from foldline.core.edits.fold.span import Span, fold, proposals, up_to

__all__ = ["Handoff", "Span", "fold", "proposals", "up_to", "write"]
