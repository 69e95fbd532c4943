"""The table of all that can be asked for: one line a route, for the app and for the document.

Knows which verb answers what, and in which form. Refuses to know how: the rooms beside do.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from foldline.apps.gateway.api import edit_routes, read_routes, schemas, turns
from foldline.apps.gateway.api.calls import EVENTS, JSON, ApiCall, Reply
from foldline.apps.gateway.api.schemas import Answer, Nothing, Shape

Does: TypeAlias = Callable[[ApiCall], Awaitable[Reply]]


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
    return Route(method=method, path=path, does=does, gives=gives, body=body, query=schemas.Waiting)


_ONE = "/{name}"
ROUTES: tuple[Route, ...] = (
    _look("", read_routes.sessions, schemas.Sessions, query=schemas.Page),
    Route(
        method="POST",
        path="",
        does=edit_routes.create,
        gives=schemas.Session,
        body=schemas.NewSession,
        status=201,
    ),
    _look(_ONE, read_routes.session, schemas.Session),
    Route(
        method="DELETE",
        path=_ONE,
        does=edit_routes.erase,
        gives=schemas.Receipt,
        query=schemas.Waiting,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/messages",
        does=turns.message,
        gives=schemas.Answered,
        body=schemas.Message,
        also=(202,),
        media=(JSON, EVENTS),
        headers=("Idempotency-Key",),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/events",
        does=turns.add,
        gives=schemas.Added,
        body=schemas.Happened,
        headers=("Idempotency-Key",),
    ),
    _look(
        f"{_ONE}/events",
        turns.events,
        schemas.Events,
        query=schemas.Stretch,
        media=(JSON, EVENTS),
        headers=("Last-Event-ID",),
    ),
    _change(f"{_ONE}/request", edit_routes.request, None, schemas.Wanted),
    _look(f"{_ONE}/requests/{{at}}", read_routes.request, None),
    _look(f"{_ONE}/context", read_routes.context, schemas.Context, media=(JSON, read_routes.SVG)),
    _look(f"{_ONE}/tokens", read_routes.tokens, schemas.Tokens),
    _change(f"{_ONE}/fold", edit_routes.fold, schemas.Folded, schemas.Folding),
    _change(f"{_ONE}/undo", edit_routes.undo, schemas.Undone, schemas.Undoing),
    _change(f"{_ONE}/redo", edit_routes.redo, schemas.Undone, Nothing),
    _change(f"{_ONE}/pin", edit_routes.pin, schemas.Pins, schemas.Pinning),
    _change(f"{_ONE}/unpin", edit_routes.unpin, schemas.Pins, schemas.Pinning),
    _change(f"{_ONE}/exclude", edit_routes.exclude, schemas.Excluded, schemas.Excluding),
    _look(f"{_ONE}/recall", read_routes.recall, schemas.Recalled, query=schemas.Handle),
    _look(f"{_ONE}/search", read_routes.search, schemas.Found, query=schemas.Words),
    _look(f"{_ONE}/history", read_routes.history, schemas.History),
    _look(f"{_ONE}/instructions", read_routes.instructions, schemas.Instructions),
    _change(
        f"{_ONE}/instructions",
        edit_routes.instruct,
        schemas.Instructions,
        schemas.Instructing,
        method="PUT",
    ),
    _change(f"{_ONE}/model", edit_routes.switch, schemas.Session, schemas.Switching, method="PUT"),
    _look(f"{_ONE}/cost", read_routes.cost, schemas.Cost),
    _look(
        f"{_ONE}/export",
        read_routes.export,
        None,
        query=schemas.Exporting,
        media=("application/jsonl", JSON, "text/markdown"),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/fork",
        does=edit_routes.fork,
        gives=schemas.Session,
        body=schemas.Forking,
        status=201,
    ),
)
