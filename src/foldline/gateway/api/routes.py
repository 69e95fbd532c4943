"""The table of all that can be asked for: one line a route, for the app and for the document.

Knows which verb answers what, and in which form. Refuses to know how: the rooms beside do.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from foldline.gateway.api import deciding, looking, shapes, turns
from foldline.gateway.api.calls import EVENTS, JSON, Call, Reply
from foldline.gateway.api.shapes import Answer, Nothing, Shape

Does: TypeAlias = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One thing that can be asked for."""

    method: str
    path: str
    """Behind /sessions; a part in braces stands for any."""
    does: Does
    gives: type[Answer] | None
    """None where the answer's form is not ours."""
    body: type[Shape] | None = None
    query: type[Shape] = Nothing
    status: int = 200
    also: tuple[int, ...] = ()
    """Other statuses with the same answer."""
    media: tuple[str, ...] = (JSON,)
    headers: tuple[str, ...] = ()
    """Headers that it reads."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The path, part by part."""
        return tuple(part for part in self.path.split("/") if part)

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (self.does.__doc__ or "").partition("\n")[0]

    def matches(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """What stands in the places of the path; None where the path is another."""
        if len(parts) != len(self.parts):
            return None
        pairs = [*zip(self.parts, parts, strict=True)]
        if any(own != given for own, given in pairs if not own.startswith("{")):
            return None
        return tuple(given for own, given in pairs if own.startswith("{"))


def _look(path: str, does: Does, gives: type[Answer] | None, **more: object) -> Route:
    return Route(method="GET", path=path, does=does, gives=gives, **more)  # pyright: ignore[reportArgumentType]


def _change(
    path: str, does: Does, gives: type[Answer] | None, body: type[Shape], *, method: str = "POST"
) -> Route:
    return Route(method=method, path=path, does=does, gives=gives, body=body, query=shapes.Waiting)


_ONE = "/{name}"
ROUTES: tuple[Route, ...] = (
    _look("", looking.sessions, shapes.Sessions, query=shapes.Page),
    Route(
        method="POST",
        path="",
        does=deciding.create,
        gives=shapes.Session,
        body=shapes.NewSession,
        status=201,
    ),
    _look(_ONE, looking.session, shapes.Session),
    Route(
        method="DELETE",
        path=_ONE,
        does=deciding.erase,
        gives=shapes.Receipt,
        query=shapes.Waiting,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/messages",
        does=turns.message,
        gives=shapes.Answered,
        body=shapes.Message,
        also=(202,),
        media=(JSON, EVENTS),
        headers=("Idempotency-Key",),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/events",
        does=turns.add,
        gives=shapes.Added,
        body=shapes.Happened,
        headers=("Idempotency-Key",),
    ),
    _look(
        f"{_ONE}/events",
        turns.events,
        shapes.Events,
        query=shapes.Stretch,
        media=(JSON, EVENTS),
        headers=("Last-Event-ID",),
    ),
    _change(f"{_ONE}/request", deciding.request, None, shapes.Wanted),
    _look(f"{_ONE}/requests/{{at}}", looking.request, None),
    _look(f"{_ONE}/context", looking.context, shapes.Context, media=(JSON, looking.SVG)),
    _look(f"{_ONE}/tokens", looking.tokens, shapes.Tokens),
    _change(f"{_ONE}/fold", deciding.fold, shapes.Folded, shapes.Folding),
    _change(f"{_ONE}/undo", deciding.undo, shapes.Undone, shapes.Undoing),
    _change(f"{_ONE}/redo", deciding.redo, shapes.Undone, Nothing),
    _change(f"{_ONE}/pin", deciding.pin, shapes.Pins, shapes.Pinning),
    _change(f"{_ONE}/unpin", deciding.unpin, shapes.Pins, shapes.Pinning),
    _change(f"{_ONE}/exclude", deciding.exclude, shapes.Excluded, shapes.Excluding),
    _look(f"{_ONE}/recall", looking.recall, shapes.Recalled, query=shapes.Handle),
    _look(f"{_ONE}/search", looking.search, shapes.Found, query=shapes.Words),
    _look(f"{_ONE}/history", looking.history, shapes.History),
    _look(f"{_ONE}/instructions", looking.instructions, shapes.Instructions),
    _change(
        f"{_ONE}/instructions",
        deciding.instruct,
        shapes.Instructions,
        shapes.Instructing,
        method="PUT",
    ),
    _change(f"{_ONE}/model", deciding.switch, shapes.Session, shapes.Switching, method="PUT"),
    _look(f"{_ONE}/cost", looking.cost, shapes.Cost),
    _look(
        f"{_ONE}/export",
        looking.export,
        None,
        query=shapes.Exporting,
        media=("application/jsonl", JSON, "text/markdown"),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/fork",
        does=deciding.fork,
        gives=shapes.Session,
        body=shapes.Forking,
        status=201,
    ),
)
