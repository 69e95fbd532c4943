"""What begins with a slash: one table, made of what a few modules offer, each by its subject."""

from foldline.apps.chat.commands import folding, looking, past, steering
from foldline.apps.chat.commands.table import ChatCommand, Misused, endings, find

TABLE: tuple[ChatCommand, ...] = (
    *looking.COMMANDS,
    *folding.COMMANDS,
    *past.COMMANDS,
    *steering.COMMANDS,
)
"""Every command, in the order of /help."""

__all__ = ["TABLE", "ChatCommand", "Misused", "endings", "find"]
