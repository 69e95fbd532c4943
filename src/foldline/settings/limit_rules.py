"""The operator's limits on what clients may use: `[[gateway.limits]]` in the settings.

    [[gateway.limits]]
    tenant = "acme"
    owner = "*"                   # each owner has a limit of its own
    dollars_per_day = 20
    soft = 0.8

A rule says what it counts apart: calls of a tenant, an owner, a key, a model, or of several of
them together. A pattern gives each tenant, owner and key that it fits a limit of its own; models
that a pattern fits are counted together, but `*` means each model.

Of rules that count the same things apart, the one that fits a call most exactly sets each limit: an
exact name before a pattern, and a longer pattern before a shorter one. Models that are counted
together are a thing of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from foldline.core.prices import PICO
from foldline.settings.kinds import Kind, SettingError, format_setting_value, parse_json

Dimension: TypeAlias = Literal["tenant", "owner", "key", "model"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("tenant", "owner", "key", "model")
COUNTS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_calls", "stored_bytes")
DOLLARS: Final = ("dollars_per_day", "dollars_per_month")
UNLIMITED: Final = "unlimited"
_HINT: Final = "write [[gateway.limits]], and below it lines like dollars_per_day = 20"
_SPARE: Final = "*"
_MOST = 10**15  # of any count
_MOST_DOLLARS = 10**6
_LONGEST = 100  # letters of a name: clients choose those of models


@dataclass(frozen=True, slots=True)
class LimitRule:
    """One table."""

    patterns: Mapping[str, str]
    """By dimension, in the order of `DIMENSIONS`; others are not looked at."""
    limits: Mapping[str, int | None]
    """By the name of what is counted, money in picodollars; None lifts another rule's limit."""
    soft: float | None = None
    """The share of a limit from which on clients are warned."""

    def __str__(self) -> str:
        """Write it in one line, as `foldline config show` does."""
        parts = [f"{name}={one}" for name, one in self.patterns.items()]
        for name, limit in self.limits.items():
            amount = limit / PICO if limit is not None and name in DOLLARS else limit
            parts.append(f"{name}={UNLIMITED if amount is None else f'{amount:g}'}")
        return " ".join([*parts, *([] if self.soft is None else [f"soft={self.soft:g}"])])

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The dimensions by which it counts."""
        return tuple(self.patterns)

    @property
    def model_group(self) -> str:
        """The pattern of models that are counted together; "" if there is none."""
        pattern = self.patterns.get("model", "")
        return pattern if pattern != _SPARE and not _is_exact(pattern) else ""

    def find_rank(self) -> tuple[tuple[bool, int], ...]:
        """How exactly it fits."""
        return tuple((_is_exact(one), len(one.strip(_SPARE))) for one in self.patterns.values())

    def counts_some_model(self, call: Mapping[str, str]) -> bool:
        """Whether it limits a call if that asks a model that it names."""
        pairs = ((name, one) for name, one in self.patterns.items() if name != "model")
        fits = all(fnmatchcase(call.get(name, ""), pattern) for name, pattern in pairs)
        return fits and "model" in self.patterns and {*self.limits.values()} != {None}

    def find_subject(self, call: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return under which names a call is counted; None if the rule does not fit it."""
        found: list[str] = []
        for dimension, pattern in self.patterns.items():
            value = call.get(dimension, "")
            if not value or not fnmatchcase(value, pattern):
                return None
            group = self.model_group if dimension == "model" else ""
            found.append(group or value[:_LONGEST])
        return tuple(found)


def _is_exact(pattern: str) -> bool:
    return not any(sign in pattern for sign in "*?[")


def parse_limit_rules(value: Any) -> tuple[LimitRule, ...]:
    """Check the tables of a file; raises `SettingError`."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise SettingError(_HINT)
    rules: list[LimitRule] = []
    for number, table in enumerate(cast("Sequence[Any]", value), 1):
        if not isinstance(table, Mapping):
            raise SettingError(_HINT)
        try:
            rules.append(_parse_rule(cast("Mapping[str, Any]", table)))
        except SettingError as fault:
            raise SettingError(f"table {number}: {fault}") from None
    return tuple(rules)


def _parse_rule(table: Mapping[str, Any]) -> LimitRule:
    known = (*DIMENSIONS, *COUNTS, *DOLLARS, "soft")
    for name in table:
        if name not in known:
            raise SettingError(
                f"there is no {format_setting_value(name)}; write {', '.join(known)}"
            )
    patterns = {name: _check_pattern(name, table[name]) for name in DIMENSIONS if name in table}
    if patterns.keys() & {"owner", "key"} and "tenant" not in patterns:
        patterns = {"tenant": _SPARE, **patterns}  # equal names of two tenants are two people
    limits = {
        name: _check_limit(name, table[name]) for name in (*COUNTS, *DOLLARS) if name in table
    }
    if not limits:
        raise SettingError(f"it limits nothing; write one of {', '.join((*COUNTS, *DOLLARS))}")
    if "stored_bytes" in limits and not {"tenant"} <= patterns.keys() <= {"tenant", "owner"}:
        raise SettingError("stored_bytes are those of a tenant, or of an owner")
    soft = table.get("soft")
    if soft is not None and (
        isinstance(soft, bool) or not isinstance(soft, int | float) or not 0 < soft < 1
    ):
        raise SettingError("soft is a share of the limit between 0 and 1, like 0.8")
    return LimitRule(patterns, limits, soft)


def _check_pattern(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\n" in value or "\0" in value:
        raise SettingError(f'{name} is a name or a pattern, like "alice" or "*"')
    return value


def _check_limit(name: str, value: Any) -> int | None:
    if value == UNLIMITED:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in DOLLARS:
        if not is_number or not 0 <= value <= _MOST_DOLLARS:
            raise SettingError(f'{name} are dollars, like 20 or 2.50, or "{UNLIMITED}"')
        return round(value * PICO)
    if not is_number or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise SettingError(f'{name} is a whole number, or "{UNLIMITED}"')
    return value


LimitTables: TypeAlias = Annotated[
    tuple[LimitRule, ...], Kind("list of tables", _HINT, parse_json, parse_limit_rules)
]


@dataclass(frozen=True, slots=True)
class ChosenLimit:
    """A limit that holds for a call."""

    measure: str
    limit: int
    dimensions: tuple[str, ...]
    names: tuple[str, ...]
    """Under which it is counted, one for each of `dimensions`."""
    soft: float | None

    @property
    def counted_tenant(self) -> str:
        """The tenant that it counts; "" if it counts all together."""
        return self.names[0] if self.dimensions[:1] == ("tenant",) else ""

    def describe_subject(self) -> str:
        """Say what is counted: `owner alice, model claude-opus-*`."""
        pairs = zip(self.dimensions, self.names, strict=True)
        return ", ".join(f"{dimension} {name}" for dimension, name in pairs) or "all calls"


def choose_limits(rules: Sequence[LimitRule], call: Mapping[str, str]) -> tuple[ChosenLimit, ...]:
    """Choose the limits that hold for a call: one for each thing that is counted apart."""
    best: dict[tuple[tuple[str, ...], str, str], tuple[LimitRule, tuple[str, ...]]] = {}
    for rule in rules:
        names = rule.find_subject(call)
        if names is None:
            continue
        for measure in rule.limits:
            place = rule.counted_by, rule.model_group, measure
            before = best.get(place)
            if before is None or rule.find_rank() >= before[0].find_rank():
                best[place] = rule, names
    found: list[ChosenLimit] = []
    for (apart, _, measure), (rule, names) in best.items():
        limit = rule.limits[measure]
        if limit is not None:
            found.append(ChosenLimit(measure, limit, apart, names, rule.soft))
    return tuple(found)
