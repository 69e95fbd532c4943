"""The table of routes, one entry per route, for the app and for the OpenAPI document."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.apps.gateway.api import edit_routes, read_routes, schemas, turns
from foldline.apps.gateway.api.api_call import EVENTS, JSON, ApiCall, Reply
from foldline.apps.gateway.api.schemas import AnswerSchema, NothingSchema, Shape

Does: TypeAlias = Callable[[ApiCall], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route, the function that serves it, and the form of its body, query and answer."""

    method: str
    path: str
    """The path below /sessions; a part in braces is a parameter."""
    does: Does
    gives: type[AnswerSchema] | None
    """None if the answer's form is not ours."""
    body: type[Shape] | None = None
    query: type[Shape] = NothingSchema
    status: int = 200
    also: tuple[int, ...] = ()
    """Other statuses with the same answer."""
    media: tuple[str, ...] = (JSON,)
    headers: tuple[str, ...] = ()
    """Headers that the route reads."""
    access: Literal["figures", "words", "owner"] = "owner"
    """Whom it serves beside a session's owner and admins: readers, as it holds no words; those the
    session is shared with, as it changes nothing; or nobody."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The path's parts."""
        return tuple(part for part in self.path.split("/") if part)

    @property
    def summary(self) -> str:
        """The first line of its function's docstring."""
        return (self.does.__doc__ or "").partition("\n")[0]

    def match_path(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the values of the path's parameters, or None if the path does not match."""
        if len(parts) != len(self.parts):
            return None
        pairs = [*zip(self.parts, parts, strict=True)]
        if any(own != given for own, given in pairs if not own.startswith("{")):
            return None
        return tuple(given for own, given in pairs if own.startswith("{"))


def _make_read_route(
    path: str, does: Does, gives: type[AnswerSchema] | None, **more: object
) -> Route:
    more = {"access": "words", **more}
    return Route(method="GET", path=path, does=does, gives=gives, **more)  # pyright: ignore[reportArgumentType]


def _make_edit_route(
    path: str,
    does: Does,
    gives: type[AnswerSchema] | None,
    body: type[Shape],
    *,
    method: str = "POST",
) -> Route:
    return Route(
        method=method, path=path, does=does, gives=gives, body=body, query=schemas.WaitingSchema
    )


_ONE = "/{name}"
ROUTES: tuple[Route, ...] = (
    _make_read_route(
        "",
        read_routes.sessions,
        schemas.SessionsSchema,
        query=schemas.PageSchema,
        access="figures",
    ),
    Route(
        method="POST",
        path="",
        does=edit_routes.create,
        gives=schemas.SessionSchema,
        body=schemas.NewSessionSchema,
        status=201,
    ),
    _make_read_route(_ONE, read_routes.session, schemas.SessionSchema, access="figures"),
    Route(
        method="DELETE",
        path=_ONE,
        does=edit_routes.erase,
        gives=schemas.ReceiptSchema,
        query=schemas.WaitingSchema,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/messages",
        does=turns.message,
        gives=schemas.AnsweredSchema,
        body=schemas.MessageSchema,
        also=(202,),
        media=(JSON, EVENTS),
        headers=("Idempotency-Key",),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/events",
        does=turns.add,
        gives=schemas.AddedSchema,
        body=schemas.HappenedSchema,
        headers=("Idempotency-Key",),
    ),
    _make_read_route(
        f"{_ONE}/events",
        turns.events,
        schemas.EventsSchema,
        query=schemas.StretchSchema,
        media=(JSON, EVENTS),
        headers=("Last-Event-ID",),
    ),
    _make_edit_route(f"{_ONE}/request", edit_routes.request, None, schemas.WantedSchema),
    _make_read_route(f"{_ONE}/requests/{{at}}", read_routes.request, None),
    _make_read_route(
        f"{_ONE}/context", read_routes.context, schemas.ContextSchema, media=(JSON, read_routes.SVG)
    ),
    _make_read_route(f"{_ONE}/tokens", read_routes.tokens, schemas.TokensSchema, access="figures"),
    _make_edit_route(f"{_ONE}/fold", edit_routes.fold, schemas.FoldedSchema, schemas.FoldingSchema),
    _make_edit_route(f"{_ONE}/undo", edit_routes.undo, schemas.UndoneSchema, schemas.UndoingSchema),
    _make_edit_route(f"{_ONE}/redo", edit_routes.redo, schemas.UndoneSchema, NothingSchema),
    _make_edit_route(f"{_ONE}/pin", edit_routes.pin, schemas.PinsSchema, schemas.PinningSchema),
    _make_edit_route(f"{_ONE}/unpin", edit_routes.unpin, schemas.PinsSchema, schemas.PinningSchema),
    _make_edit_route(
        f"{_ONE}/exclude", edit_routes.exclude, schemas.ExcludedSchema, schemas.ExcludingSchema
    ),
    _make_read_route(
        f"{_ONE}/recall", read_routes.recall, schemas.RecalledSchema, query=schemas.HandleSchema
    ),
    _make_read_route(
        f"{_ONE}/search", read_routes.search, schemas.FoundSchema, query=schemas.WordsSchema
    ),
    _make_read_route(f"{_ONE}/history", read_routes.history, schemas.HistorySchema),
    _make_read_route(f"{_ONE}/instructions", read_routes.instructions, schemas.InstructionsSchema),
    _make_edit_route(
        f"{_ONE}/instructions",
        edit_routes.instruct,
        schemas.InstructionsSchema,
        schemas.InstructingSchema,
        method="PUT",
    ),
    _make_edit_route(
        f"{_ONE}/model",
        edit_routes.switch,
        schemas.SessionSchema,
        schemas.SwitchingSchema,
        method="PUT",
    ),
    _make_read_route(f"{_ONE}/cost", read_routes.cost, schemas.CostSchema, access="figures"),
    _make_read_route(
        f"{_ONE}/export",
        read_routes.export,
        None,
        query=schemas.ExportingSchema,
        media=("application/jsonl", JSON, "text/markdown"),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/fork",
        does=edit_routes.fork,
        gives=schemas.SessionSchema,
        body=schemas.ForkingSchema,
        status=201,
    ),
    _make_read_route(f"{_ONE}/shares", read_routes.shares, schemas.SharesSchema, access="owner"),
    Route(
        method="PUT",
        path=f"{_ONE}/shares/{{owner}}",
        does=edit_routes.share,
        gives=schemas.SharesSchema,
    ),
    Route(
        method="DELETE",
        path=f"{_ONE}/shares/{{owner}}",
        does=edit_routes.unshare,
        gives=schemas.SharesSchema,
    ),
)
