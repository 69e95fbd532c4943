"""The model that `lab quality` and `lab tasks` ask: client, window, prices, consent to pay.

A server of one's own costs nothing unless `--prices` says so. Everybody else's prices are those of
the server's list, else the catalogue's. Nothing that costs money begins without `--yes` or an
answer at a terminal.
"""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar, cast

import typer

from foldline.apps.cli.find_sessions import parse_terms
from foldline.apps.cli.output import print_remark
from foldline.core.parts import replace_surrogates
from foldline.core.prices import Prices
from foldline.errors import BadInput
from foldline.lab.comparison import Interval
from foldline.models.catalog import resolve_model
from foldline.models.clients import normalize_address
from foldline.models.port import Model

A = TypeVar("A", bound=str)
ModelOption = Annotated[str, typer.Option(metavar="MODEL", help="Who is asked.")]
BaseUrlOption = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="A server that speaks as OpenAI does."),
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        metavar="IN,READ,WRITE,OUT|MODEL",
        help="Dollars per million tokens, or a model's; else the catalogue's.",
    ),
]
MostOption = Annotated[
    float | None,
    typer.Option(metavar="DOLLARS", min=0, help="Stop before more than this is spent in all."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask whether to pay.")]
OutOption = Annotated[
    Path,
    typer.Option(
        metavar="FILE", help="One line per answer; a second start goes on.", dir_okay=False
    ),
]


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model to ask, and what is known of it."""

    model: Model
    window: int | None
    """Its real window; None if nobody says."""
    prices: Prices | None
    """None: it costs nothing."""

    @property
    def is_guessed(self) -> bool:
        """Whether the prices are a guess."""
        return self.prices is not None and not self.prices.is_known


@asynccontextmanager
async def open_asked_model(
    name: str, base_url: str | None, prices: str | None
) -> AsyncGenerator[AskedModel]:
    """Open the client of a model, and find out its window and prices."""
    from foldline.models.clients import client  # noqa: PLC0415 - `--help` needs none of it
    from foldline.models.servers import ask, is_own_address  # noqa: PLC0415

    name = replace_surrogates(name)
    given = parse_terms(prices, None).prices
    if base_url is not None:
        normalize_address(base_url)  # raises for what is no address, before anything is asked
    known = resolve_model(name)
    made = client(name, base_url=base_url)
    try:
        reported = await ask(base_url, name) if base_url else None
        window = known.window
        if reported is not None and reported.window is not None:
            window = reported.window
        found = (reported.prices if reported else None) or known.prices
        free = base_url is not None and is_own_address(base_url)
        yield AskedModel(made, window, given or (None if free else found))
    finally:
        await made.close()


def must_have_consent(asked: AskedModel, estimate: str, dollars: float, *, yes: bool) -> None:
    """Say what a run would cost; raises unless that is nothing or somebody agrees."""
    if asked.prices is None:
        print_remark(f"{estimate}; the server is your own, so it costs nothing")
        return
    guess = ", at guessed prices: the catalogue does not have this model" * asked.is_guessed
    print_remark(f"{estimate}; at most about ${dollars:,.2f}{guess}")
    if yes or not dollars:
        return
    if not sys.stdin.isatty():
        raise BadInput("this costs money, and nobody is there to agree: add --yes")
    if not typer.confirm("Go on?", err=True):
        raise typer.Abort


def parse_arms(given: str | None, known: Sequence[A], usual: Sequence[A]) -> Sequence[A]:
    """Parse the names of arms; the usual ones if none are given."""
    if given is None:
        return usual
    wanted = [one.strip() for one in replace_surrogates(given).split(",") if one.strip()]
    if not wanted or any(one not in known for one in wanted):
        raise BadInput(f"--arms {given}: there are {', '.join(known)}; write some, with commas")
    return cast("list[A]", wanted)


def print_stopped(stopped: str) -> None:
    """Say why a run stopped, and how it goes on."""
    print_remark(f"{stopped}; the same command with a larger --most goes on")


def format_share(share: float | None) -> str:
    """Format a share in percent."""
    return "-" if share is None else f"{100 * share:.0f} %"


def format_range(interval: Interval | None) -> str:
    """Format the ends of an interval, in percent."""
    return "-" if interval is None else f"{100 * interval.low:.0f} to {100 * interval.high:.0f}"


def format_difference(interval: Interval | None) -> str:
    """Format a difference and its interval, in percent points."""
    if interval is None:
        return "-"
    mean, low, high = (round(100 * one) for one in interval)
    return f"{mean:+d} ({low:+d} to {high:+d})"
