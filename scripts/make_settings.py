"""Write the tables of docs/reference/settings.md anew, from the settings that the code knows.

.venv/bin/python scripts/make_settings.py
"""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from foldline.core.policy import STEADY
from foldline.settings.fields import SETTINGS, SettingField

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
BEGIN, END = "<!-- made by scripts/make_settings.py -->\n", "<!-- end -->\n"
HEAD = "| setting | variable | what it may be | default | what it means |\n|---|---|---|---|---|"


def tables() -> str:
    """A table for each group of settings."""
    return (
        "\n\n".join("\n".join(_table(top, [*some])) for top, some in groupby(SETTINGS, _top)) + "\n"
    )


def _top(one: SettingField) -> str:
    return one.name.partition(".")[0] if "." in one.name else ""


def _table(top: str, some: list[SettingField]) -> Iterator[str]:
    yield f"### `[{top}]`\n" if top else "### At the top\n"
    yield HEAD
    for one in some:
        held = " †" if one.guarded else ""
        cells = (
            f"`{one.name}`{held}",
            f"`{one.env}`",
            one.kind.label,
            _default(one),
            one.description,
        )
        yield f"| {' | '.join(cells)} |"


def _default(one: SettingField) -> str:
    if one.policy:
        return f"the policy's; `steady`: {_shown(one.read_policy(STEADY))}"
    return _shown(one.default)


def _shown(value: Any) -> str:
    match value:
        case None | "" | ():
            return "-"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`{', '.join(cast('tuple[str, ...]', value))}`"
        case float():
            return f"`{value:g}`"
        case _:
            return f"`{value}`"


def page() -> str:
    """The page, with its tables made anew."""
    found = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return found.sub(lambda _: f"{BEGIN}\n{tables()}\n{END}", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
