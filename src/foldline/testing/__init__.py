"""For users' tests and ours: conversations built by hand or at random, on the real core."""

from foldline.lab.planned import Planned
from foldline.testing.logs import Conversation, Sent, calls, model, result, user, view_of
from foldline.testing.play import Step, play, steps

__all__ = [
    "Conversation",
    "Planned",
    "Sent",
    "Step",
    "calls",
    "model",
    "play",
    "result",
    "steps",
    "user",
    "view_of",
]
