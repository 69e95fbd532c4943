"""Write the model catalogue that ships in the wheel, from the package genai-prices.

    uv run --no-project --with genai-prices python scripts/make_catalog.py

Run by hand when prices change; the package is never imported at run time. What it does not know
(the largest input and output) is in OUTPUTS below, each with its source.
"""

import importlib.metadata
import json
from datetime import UTC, datetime
from pathlib import Path

from genai_prices.data import providers

TARGET = Path(__file__).parents[1] / "src" / "foldline" / "models" / "catalog.json"
MAKERS = (
    "anthropic",
    "cohere",
    "deepseek",
    "google",
    "minimax",
    "mistral",
    "moonshotai",
    "openai",
    "x-ai",
    "zai",
)
OUTPUTS = {  # (largest input, largest output): the maker's model pages
    "gpt-5": (272_000, 128_000),
    "gpt-5-mini": (272_000, 128_000),
    "gpt-5-nano": (272_000, 128_000),
}
WINDOWS = {"gemini-1.5-pro": 2_000_000}  # the package says half of what the maker's page does


def price(value):
    """Dollars a million tokens, without and above a step: (base, step at, price above it)."""
    if value is None:
        return None, None, None
    if hasattr(value, "base"):
        tier = value.tiers[0]
        return float(value.base), tier.start, float(tier.price)
    return float(value), None, None


def main() -> None:
    """Write the file, a line a model, sorted, so that a change reads well."""
    entries = []
    for provider in providers:
        if provider.id not in MAKERS:
            continue
        for model in provider.models:
            prices = model.prices
            if isinstance(prices, list):
                prices = prices[-1].prices
            paid, step, above = price(prices.input_mtok)
            if paid is None or getattr(prices, "output_mtok", None) is None:
                continue
            largest = OUTPUTS.get(model.id, (None, None))
            entry = {
                "id": model.id,
                "maker": provider.id,
                "window": WINDOWS.get(model.id, model.context_window),
                "max_input": largest[0],
                "max_output": largest[1],
                "input": paid,
                "read": price(prices.cache_read_mtok)[0],
                "write": price(prices.cache_write_mtok)[0],
                "output": price(prices.output_mtok)[0],
                "step": step,
                "above": above,
            }
            entries.append({key: value for key, value in entry.items() if value is not None})
    head = {
        "source": f"genai-prices {importlib.metadata.version('genai-prices')}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    lines = ",\n".join(
        json.dumps(entry) for entry in sorted(entries, key=lambda e: (e["maker"], e["id"]))
    )
    TARGET.write_text(
        f'{{"source": "{head["source"]}", "date": "{head["date"]}", "models": [\n{lines}\n]}}\n'
    )


if __name__ == "__main__":
    main()
