"""For users' tests and ours: conversations built by hand or at random, on the real core."""

from foldline.lab.policy_run import Planned
from foldline.testing.logs import Conversation, Sent, calls, model, result, user, view_of
from foldline.testing.models import ScriptedModel
from foldline.testing.play import Step, play, steps
from foldline.testing.provider import Provider, Trouble

__all__ = [
    "Conversation",
    "Planned",
    "Provider",
    "ScriptedModel",
    "Sent",
    "Step",
    "Trouble",
    "calls",
    "model",
    "play",
    "result",
    "steps",
    "user",
    "view_of",
]
