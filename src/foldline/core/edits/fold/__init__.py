"""Folding: the oldest span of a view becomes one handoff, with or without a model's narrative.

span     Choose the span, tell when a fold pays, build the event
handoff  Build the handoff's text
ask      Gather the material; build the prompts for a narrative
verify   Verify a narrative; imported only where one is asked for, as few sessions do
injection_words  Find words that command or pretend
loss     Measure what a fold takes out of sight
"""

from foldline.core.edits.fold.ask import (
    Ask,
    Prepared,
    Prompt,
    build_prompts,
    build_suffix_prompt,
    gather_material,
    list_events_to_fetch,
    select_source_events,
)
from foldline.core.edits.fold.handoff import (
    NARRATIVE,
    Material,
    add_acknowledgement,
    build_handoff,
    build_omission_notice,
    count_newest_words,
)
from foldline.core.edits.fold.loss import Loss, measure_loss
from foldline.core.edits.fold.span import (
    MOST_FOLDS,
    Cache,
    Merging,
    Moment,
    Span,
    Why,
    choose_cut_within,
    choose_fold_start,
    collect_hidden_events,
    count_span_messages,
    count_tokens_before,
    find_cut_before_tail,
    find_paying_fold,
    fold_span,
    iterate_fold_spans,
    taken_back,
    up_to,
)

__all__ = [
    "MOST_FOLDS",
    "NARRATIVE",
    "Ask",
    "Cache",
    "Loss",
    "Material",
    "Merging",
    "Moment",
    "Prepared",
    "Prompt",
    "Span",
    "Why",
    "add_acknowledgement",
    "build_handoff",
    "build_omission_notice",
    "build_prompts",
    "build_suffix_prompt",
    "choose_cut_within",
    "choose_fold_start",
    "collect_hidden_events",
    "count_newest_words",
    "count_span_messages",
    "count_tokens_before",
    "find_cut_before_tail",
    "find_paying_fold",
    "fold_span",
    "gather_material",
    "iterate_fold_spans",
    "list_events_to_fetch",
    "measure_loss",
    "select_source_events",
    "taken_back",
    "up_to",
]
