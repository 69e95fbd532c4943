"""Write the model catalogue that ships in the wheel, from the packages genai-prices and litellm.

    uv pip install --target /tmp/made --no-deps litellm
    PYTHONPATH=/tmp/made uv run --no-project --with genai-prices python scripts/make_catalog.py

Run by hand when prices change; neither package is imported at run time. Windows and prices are
those of genai-prices; the largest input and output, the end of a model, and models that only
litellm knows are litellm's. What neither knows is in OUTPUTS and WINDOWS below.
"""

import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from genai_prices.data import providers

TARGET = Path(__file__).parents[1] / "src" / "foldline" / "models" / "catalog.json"
LIMITS = "model_prices_and_context_window_backup.json"  # in the wheel of litellm
MAKERS = {  # as genai-prices calls them, and as litellm does; the maker's own API first
    "anthropic": ("anthropic",),
    "cohere": ("cohere_chat", "cohere"),
    "deepseek": ("deepseek",),
    "google": ("gemini", "vertex_ai-language-models"),
    "meta": ("meta",),
    "minimax": ("minimax",),
    "mistral": ("mistral",),
    "moonshotai": ("moonshot",),
    "openai": ("openai",),
    "qwen": ("dashscope",),  # only litellm has it
    "x-ai": ("xai",),
    "zai": ("zai",),
}
OUTPUTS = {  # the makers' model pages, of models that litellm no longer lists
    "claude-2": 4_096,
    "claude-3-5-haiku": 8_192,
    "claude-3-5-sonnet": 8_192,
    "claude-3-7-sonnet": 64_000,
    "claude-3-haiku": 4_096,
    "claude-3-opus": 4_096,
    "claude-3-sonnet": 4_096,
    "claude-4-opus": 32_000,
    "claude-4-sonnet": 64_000,
    "claude-opus-4-0": 32_000,
    "claude-opus-4-1": 32_000,
    "claude-sonnet-4-0": 64_000,
    "gemini-1-5-flash": 8_192,
    "gemini-1-5-pro": 8_192,
    "gemini-2-0-flash": 8_192,
    "gemini-2-0-flash-lite": 8_192,
}
WINDOWS = {  # where genai-prices is behind the maker's page
    "deepseek-chat": 128_000,
    "deepseek-reasoner": 128_000,
    "gemini-1.5-pro": 2_000_000,
}
SIZES = ("max_input_tokens", "max_output_tokens")
SPLIT = (400_000, 1_050_000)  # windows of which a part is for the output alone
BOUNDED = ("anthropic", "google", "openai")  # their answers are never as long as the window
ADDED = (*BOUNDED, "meta", "qwen")  # of these, models that only litellm knows
NOW = datetime.now(UTC)
LARGEST = 10_000_000
LEAST = 4_096  # a host's smaller limit on the output is its own, not the model's
DATE = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
STEP = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
FIELDS = (
    *("id", "maker", "window", "max_input", "max_output"),
    *("input", "read", "write", "output", "step", "above", "above_output", "ends"),
)
Row = dict[str, Any]


def last_part(key: str) -> str:
    """Return a model's name without hosts before it."""
    return re.sub(r"^([a-z-]+\.)?anthropic\.", "", key.lower().rpartition("/")[2])


def normalise(name: str) -> str:
    """Normalise as `foldline.models.catalog` does."""
    return DATE.sub("", last_part(name)).replace(".", "-")


def load_rows() -> dict[str, Row]:
    """Load what litellm knows of models that answer in text, without importing it."""
    spec = importlib.util.find_spec("litellm")
    rows = json.loads((Path(spec.submodule_search_locations[0]) / LIMITS).read_text())
    return {key: row for key, row in rows.items() if row.get("mode") in ("chat", "responses")}


class Limits:
    """What litellm knows of one model: the maker's own rows, or else those of any host."""

    def __init__(self, rows: dict[str, Row], name: str, maker: str) -> None:
        self.name, self.maker = name, maker
        same = {key: row for key, row in rows.items() if normalise(key) == normalise(name)}
        own = [
            (last_part(key), row)
            for host in MAKERS[maker]
            for key, row in same.items()
            if row["litellm_provider"] == host
        ]
        self.exact = [row for key, row in own if key == name.lower()]
        self.dated = [row for key, row in own if key != name.lower()]
        self.own = self.exact or self.dated
        self.hosts = self.own or [*same.values()]

    @property
    def window(self) -> int | None:
        """The window, where only the largest input is known: some count the output beside it."""
        most, out = (self.own[0].get(key) for key in SIZES) if self.own else (None, None)
        return most + out if most and out and most + out in SPLIT else most

    def find_input(self, window: int | None) -> int | None:
        """Find the largest input, if it is less than the window by what is kept for the output."""
        most, out = (self.own[0].get(key) for key in SIZES) if self.own else (None, None)
        return most if window in SPLIT and most and out and most + out == window else None

    def find_output(self, window: int | None) -> int | None:
        """Find the largest output: the smallest that is named."""
        known = [row.get("max_output_tokens") or 0 for row in self.hosts]
        most = (window or self.window or LARGEST) - (self.maker in BOUNDED)
        known = [one for one in known if LEAST <= one <= most]
        return OUTPUTS.get(normalise(self.name), min(known, default=None))

    @property
    def end(self) -> str | None:
        """The day from which it is no longer served: its own, or that of its last dated name."""
        dates = [row.get("deprecation_date") for row in self.exact[:1] or self.dated]
        if dates == [None] and self.dated:
            dates = [row.get("deprecation_date") for row in self.dated]
        return max(dates) if dates and all(dates) else None


def price(value):
    """Dollars a million tokens, without and above a step: (base, step at, price above it)."""
    if value is None:
        return None, None, None
    if hasattr(value, "base"):
        tier = value.tiers[0]
        return float(value.base), tier.start, float(tier.price)
    return float(value), None, None


def find_present(prices):
    """Find the prices of today: the last that has begun, those of some hours left out."""
    if not isinstance(prices, list):
        return prices
    begun = [
        one
        for one in prices
        if one.constraint is None or getattr(one.constraint, "start_date", date.max) <= NOW.date()
    ]
    return (begun or prices)[-1].prices


def list_priced() -> Iterator[Row]:
    """List the models that genai-prices has a price of."""
    for provider in providers:
        if provider.id not in MAKERS:
            continue
        for model in provider.models:
            prices = find_present(model.prices)
            paid, step, above = price(prices.input_mtok)
            if paid is None or getattr(prices, "output_mtok", None) is None:
                continue
            yield {
                "id": model.id,
                "maker": provider.id,
                "window": WINDOWS.get(model.id, model.context_window),
                "input": paid,
                "read": price(prices.cache_read_mtok)[0],
                "write": price(prices.cache_write_mtok)[0],
                "output": price(prices.output_mtok)[0],
                "step": step,
                "above": above,
                "above_output": price(prices.output_mtok)[2],
                "ends": "ended" if model.deprecated else None,
            }


def list_others(rows: dict[str, Row], known: set[str]) -> Iterator[Row]:
    """List the models that only litellm knows, whose dialects we speak and that have not ended."""
    today = datetime.now(UTC).date().isoformat()
    for key, row in rows.items():
        name, host = normalise(key), row["litellm_provider"]
        maker = next((maker for maker in ADDED if MAKERS[maker][0] == host), None)
        paid, output = (row.get(f"{way}_cost_per_token") for way in ("input", "output"))
        ended = (row.get("deprecation_date") or today) < today
        if (
            maker is None
            or not paid
            or not output
            or ended
            or name in known
            or ":" in name
            or (maker == "qwen" and not name.startswith("qw"))
        ):
            continue
        known.add(name)
        step = next((found for one in row if (found := STEP.fullmatch(one))), None)
        yield {
            "id": last_part(key),
            "maker": maker,
            "window": None,
            "input": to_million(paid),
            "read": to_million(row.get("cache_read_input_token_cost")),
            "write": to_million(row.get("cache_creation_input_token_cost")),
            "output": to_million(output),
            "step": int(step[1]) * 1_000 if step else None,
            "above": to_million(row[step[0]]) if step else None,
            "above_output": to_million(row.get(step[0].replace("input", "output")))
            if step
            else None,
            "ends": None,
        }


def to_million(paid: float | None) -> float | None:
    """Dollars a million tokens, of dollars a token."""
    return round(paid * 1_000_000, 6) if paid else None


def main() -> None:
    """Write the file, a line a model, sorted, so that a change reads well."""
    rows = load_rows()
    found = [*list_priced()]
    found += list_others(rows, {normalise(entry["id"]) for entry in found})
    seen: set[str] = set()
    lines: list[str] = []
    for entry in sorted(found, key=lambda entry: (entry["maker"], entry["id"])):
        if entry["id"].lower() in seen:
            continue  # a reseller's: nobody would find it
        seen.add(entry["id"].lower())
        limits = Limits(rows, entry["id"], entry["maker"])
        entry["window"] = window = entry["window"] or limits.window
        entry["max_input"] = limits.find_input(window)
        entry["max_output"] = limits.find_output(window)
        entry["ends"] = limits.end or entry["ends"]
        lines.append(json.dumps({key: entry[key] for key in FIELDS if entry[key] is not None}))
    versions = [f"{one} {importlib.metadata.version(one)}" for one in ("genai-prices", "litellm")]
    head = {"source": ", ".join(versions), "date": datetime.now(UTC).date().isoformat()}
    body = ",\n".join(lines)
    TARGET.write_text(f'{json.dumps(head)[:-1]}, "models": [\n{body}\n]}}\n')


if __name__ == "__main__":
    main()
