"""The file of a run that asks a model: one line of JSON per answer, so that a run can go on.

The first line says what the run is. A second start with the same settings reads the lines and asks
only what is missing; other settings are refused. A line that a crash left unfinished is dropped.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from foldline.core.prices import PICO, PaidTokens, Prices, format_dollars
from foldline.errors import BadInput, FoldlineError
from foldline.session.spending import estimate_cost

_HEAD = "run"
_KEY = "key"
_UNDERCOUNT = 1.2  # a provider may count this many times the tokens that we estimate


class MoneySpent(FoldlineError):  # noqa: N818 - named for what happened
    """The next call could cost more than may still be spent."""


class AnswerFile:
    """The answers of a run by their keys, and what they cost."""

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        self._run = dict(run)
        self._read_lines()

    @property
    def dollars(self) -> float:
        """What all answers in the file cost."""
        return sum(row.get("dollars", 0.0) for row in self.rows.values())

    def add_row(self, key: str, row: Mapping[str, Any]) -> None:
        """Write an answer; it is on the disk when this returns."""
        if key in self.rows:
            raise ValueError(f"{key!r} is answered already")
        lines = [] if self.rows or self._has_head() else [{_HEAD: self._run}]
        with self.path.open("a", encoding="utf-8") as file:
            for line in (*lines, {_KEY: key, **row}):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows[key] = dict(row)

    def _has_head(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def _read_lines(self) -> None:
        if not self._has_head():
            return
        body = self.path.read_bytes()
        whole = body[: body.rfind(b"\n") + 1]
        try:
            head, *rows = [json.loads(line) for line in whole.splitlines()] or [{}]
            before = head[_HEAD]
            self.rows = {row.pop(_KEY): row for row in rows}
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            raise BadInput(
                f"{self.path} is no file of answers ({fault!r}); name another with --out"
            ) from fault
        if before != self._run:
            raise BadInput(f"{self.path} {_describe_difference(before, self._run)}")
        if len(whole) < len(body):
            os.truncate(self.path, len(whole))


def _describe_difference(before: Any, now: Mapping[str, Any]) -> str:
    was = cast("dict[str, Any]", before) if isinstance(before, dict) else {}
    changed = [key for key in {**was, **now} if was.get(key) != now.get(key)]
    changes = ", ".join(f"{key} {was.get(key)!r}, now {now.get(key)!r}" for key in sorted(changed))
    return f"is of another run ({changes}); name another file with --out, or set the same"


class RunMoney:
    """Prices of a run, and the most it may cost with everything that its file has already."""

    def __init__(self, file: AnswerFile, prices: Prices | None, most: float | None) -> None:
        self.file = file
        self.prices = prices
        """None: the model costs nothing."""
        self.most = most

    def compute_dollars(self, tokens: PaidTokens) -> float:
        """Compute what a call cost."""
        return tokens.compute_price(self.prices) / PICO if self.prices else 0.0

    def estimate_dollars(self, tokens_in: int, tokens_out: int) -> float:
        """Estimate the most that a call costs: all its input is written to the cache."""
        return estimate_cost(self.prices, tokens_in, tokens_out).dollars if self.prices else 0.0

    def must_have(self, tokens_in: int, tokens_out: int, *, spent: float = 0.0) -> None:
        """Raise `MoneySpent` if a call could exceed the most; `spent` is not in the file yet."""
        if self.most is None:
            return
        would = self.estimate_dollars(round(tokens_in * _UNDERCOUNT), tokens_out)
        if self.file.dollars + spent + would > self.most:
            raise MoneySpent(
                f"{format_dollars(self.file.dollars + spent)} are spent, the next call could cost "
                f"{format_dollars(would)}, and --most is {format_dollars(self.most)}"
            )
