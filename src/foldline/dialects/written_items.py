"""What dialects ask of items: whether one is written at all, and which one ends a request."""

from foldline.core.item import Item
from foldline.core.parts import Call, Media, spoken_text_of
from foldline.core.view import View


def is_blank_item(item: Item, dialect: str) -> bool:
    """Whether an item has only thoughts or blank words, so that nothing is written.

    A result is always written, and so is what came in the dialect itself.
    """
    if item.role == "result" or (item.native is not None and item.native.dialect == dialect):
        return False
    return not any(
        isinstance(part, Call | Media) or spoken_text_of((part,)).strip() for part in item.parts
    )


def find_last_answer(view: View, dialect: str) -> Item | None:
    """Return the answer that a request would end with; None if it ends with something else."""
    if view.open:
        return None  # open calls are closed first, and their results end the request
    every = reversed((*view.items, *view.waiting))
    last = next((item for item in every if not is_blank_item(item, dialect)), None)
    return last if last is not None and last.role == "model" else None
