"""The lines that sessions log, at the logger `foldline.session`.

    INFO      from where on a new session is folded, a fold, a fork, a learned window, a healed
              refusal, a narrative with lines left out
    WARNING   a message that is cut because the window holds no more of it, a vetoed fold,
              a narrative that failed or was rejected, an assumed window, a prompt that its
              server has cut, a request without a field that was asked for
    ERROR     a fold that could not be made, a session that could not be opened for one

A line names sessions, models and sizes, and never says what was said. It holds no words of a
provider or a summarizer either: these may quote a message.
"""

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from foldline.core.fold_selection import Facts, explain_folding
from foldline.core.log import Clipped, Event, Folded, ServerTruncated, UserSaid, WindowLearned
from foldline.core.names import format_handle
from foldline.core.parts import Clip
from foldline.core.view import View
from foldline.errors import FoldlineError, Overflow
from foldline.stores.base import Name

if TYPE_CHECKING:
    from logging import Logger

    from foldline.models.summarize import Narrative

_REASONS = {
    "": "asked",
    "full": "the window is full: it cannot be sent otherwise, so no yes was waited for",
}
_LONGEST = 80  # characters of a name
_LONGEST_REASON = 200
_MODELS = 1_000  # that are warned of: clients of a gateway may make up names without end
_assumed: set[str] = set()  # models whose assumed window was warned of


def log_events(name: Name, events: Sequence[Event]) -> None:
    """Log those of some appended events that are worth a line."""
    for event in events:
        match event:
            case Folded():
                _get_logger().info(
                    "%s: folded %d messages (%s): %s → %s tokens",
                    _clean_text(name.session), event.messages, _REASONS.get(event.why, event.why),
                    f"{event.before:,}", f"{event.after:,}",
                )  # fmt: skip
            case UserSaid(clip=Clip(whole=whole, shown=shown)):
                _get_logger().warning(
                    "%s: a message is cut to %s of %s tokens: the window holds no more of it",
                    _clean_text(name.session), f"{shown:,}", f"{whole:,}",
                )  # fmt: skip
            case Clipped(stubs):
                _get_logger().warning(
                    "%s: messages that nobody has answered are cut to fit together: %s",
                    _clean_text(name.session), ", ".join(format_handle(one.seq) for one in stubs),
                )  # fmt: skip
            case WindowLearned(model, window):
                _get_logger().info(
                    "%s: the window of %s is %s tokens, learned from a refusal",
                    _clean_text(name.session), _clean_text(model), f"{window:,}",
                )  # fmt: skip
            case ServerTruncated(estimated, reported):
                _get_logger().warning(
                    "%s: the server has cut the prompt: %s tokens were sent, %s were read",
                    _clean_text(name.session), f"{estimated:,}", f"{reported:,}",
                )  # fmt: skip
            case _:
                pass


def log_folding_rule(name: Name, view: View, facts: Facts) -> None:
    """Log from where on a session is folded; without `logging`, no INFO line is read."""
    if "logging" in sys.modules:
        _get_logger().info("%s: %s", _clean_text(name.session), explain_folding(view, facts))


def log_fork(name: Name, to: str, at: int) -> None:
    """Log that a session was forked."""
    _get_logger().info("%s: forked at %d into %s", _clean_text(name.session), at, _clean_text(to))


def log_heal(name: Name, before: int, after: int) -> None:
    """Log that a refused request is replaced by a smaller one."""
    _get_logger().info(
        "%s: a refusal is healed: %s → %s tokens",
        _clean_text(name.session),
        f"{before:,}",
        f"{after:,}",
    )


def log_veto(name: Name, why: str) -> None:
    """Log that a request is sent without a fold that was vetoed."""
    _get_logger().warning(
        "%s: a fold was vetoed, and the request is sent without it: %s",
        _clean_text(name.session), _clean_text(why, most=_LONGEST_REASON),
    )  # fmt: skip


def log_failed_fold(name: Name, fault: FoldlineError) -> None:
    """Log a fold that could not be made: nothing made the request fit, or the store failed."""
    _get_logger().error("%s: a fold failed (%s)", _clean_text(name.session), _describe_fault(fault))


def log_unopened(name: Name, fault: FoldlineError) -> None:
    """Log that a session could not be opened, and so not be folded."""
    _get_logger().error(
        "%s: the session cannot be opened for a fold (%s)",
        _clean_text(name.session), _describe_fault(fault),
    )  # fmt: skip


def _describe_fault(fault: FoldlineError) -> str:
    """Describe an error by its class: its words may be a driver's, or quote a message."""
    if not isinstance(fault, Overflow):
        return type(fault).__name__
    total = sum(fault.parts.values())
    return f"Overflow: {total:,} tokens, and {fault.limit:,} fit"


def log_narrative(name: Name, narrative: "Narrative", model: str) -> None:
    """Log a narrative that failed or was rejected, or of which lines were left out."""
    if narrative.prepared is not None and narrative.left_out:
        _get_logger().info(
            "%s: a narrative of %s: %d of %d lines left out, not proven",
            _clean_text(name.session), _clean_text(model), len(narrative.left_out),
            len(narrative.left_out) + len(narrative.prepared.lines),
        )  # fmt: skip
    if narrative.outcome not in ("failed", "rejected"):
        return
    fault = f" ({narrative.fault})" if narrative.fault else ""
    _get_logger().warning(
        "%s: a narrative of %s %s%s; the fold goes without one",
        _clean_text(name.session), _clean_text(model), narrative.outcome, fault,
    )  # fmt: skip


def warn_of_assumed_window(model: str, window: int) -> None:
    """Warn that a model's window is unknown; once per model and process."""
    if model in _assumed or len(_assumed) >= _MODELS:
        return
    _assumed.add(model)
    _get_logger().warning(
        "%s: its window is unknown, %s tokens are assumed; set `window` or models.toml (said once)",
        _clean_text(model), f"{window:,}",
    )  # fmt: skip


def warn_of_dropped_fields(name: Name, fields: Collection[str]) -> None:
    """Warn that a request goes without fields that its caller asked for."""
    if fields:
        _get_logger().warning(
            "%s: a request goes without %s, which the provider would refuse here",
            _clean_text(name.session), ", ".join(sorted(fields)),
        )  # fmt: skip


def _clean_text(text: str, *, most: int = _LONGEST) -> str:
    """Return a text as one line without control characters: it may be a stranger's."""
    line = " ".join(text[: 2 * most].split())
    return "".join(one if one.isprintable() else "?" for one in line)[:most]


def _get_logger() -> "Logger":
    import logging  # noqa: PLC0415 - slow to import, and few calls log anything

    return logging.getLogger("foldline.session")
