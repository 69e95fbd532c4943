"""Folding: the oldest span of a view becomes one handoff item, without a model."""

from foldline.core.edits.fold.handoff import Handoff, write
from foldline.core.edits.fold.moment import Cache, worthwhile
from foldline.core.edits.fold.span import Span, fold, proposals, up_to

__all__ = ["Cache", "Handoff", "Span", "fold", "proposals", "up_to", "worthwhile", "write"]
