"""What is said beside answers: that a fold is due, what it did, and the buttons under it.

Knows the literal texts of A-36, and which buttons make sense where. Refuses to send.
"""

from foldline.apps.bot.bot_api import Button, Buttons
from foldline.apps.bot.html import HtmlText, framed, plainly
from foldline.core.edits.fold import Loss
from foldline.session.hooks import Pass
from foldline.session.session import AsyncSession

FOCUS = "Focus: "
COMPACT = Button("Compact", "compact")
PREVIEW = Button("Preview", "preview")
UNDO = Button("Undo", "undo")
REDO = Button("Redo", "redo")
_REASONS = {
    "forced": "the window was nearly full",
    "pays": "it pays: fewer tokens are read from now on",
    "cold": "the cache was cold: it cost nothing",
    "due": "the policy's rule asked for it",
}


def usage(tokens: int, window: int) -> str:
    """How full a window is."""
    return f"{tokens:,}/{window:,} ({100 * tokens / window:.1f}%)"


def asked(session: AsyncSession) -> tuple[HtmlText, Buttons]:
    """A fold is due, and a person decides: A-36."""
    now = session.report
    share = f"{100 * now.total / now.window:.0f}%"
    told = (
        f"⚠ Context usage at {share}. Reply /compact to summarize and continue, or keep chatting."
    )
    return plainly(told), [[COMPACT, PREVIEW]]


def folded(one: Pass) -> tuple[HtmlText, Buttons]:
    """A fold was made by itself, or forbidden."""
    if one.outcome != "applied":
        return plainly(f"◆ A fold was forbidden: {one.reason}"), ()
    why = _REASONS.get(one.trigger, "")
    told = f"◆ Folded: {one.before:,} → {one.after:,} tokens{f'; {why}' if why else ''}"
    return plainly(told), [[UNDO]]


def compacted(before: int, now: int, window: int, lost: Loss) -> tuple[HtmlText, Buttons]:
    """A fold was made by hand: A-44."""
    head = f"◆ Context: {usage(before, window)} → {usage(now, window)}"
    return framed(head, str(lost)), [[UNDO]]


def previewed(lost: Loss, focus: str) -> tuple[HtmlText, Buttons]:
    """What a fold would do."""
    body = f"{lost}\n{FOCUS}{focus}" if focus else str(lost)
    return framed("A fold now would do this; nothing was changed:", body), [[COMPACT]]


def nothing() -> tuple[HtmlText, Buttons]:
    """There is nothing to fold."""
    return plainly("Nothing to fold: what is there is in use, or too little."), ()
