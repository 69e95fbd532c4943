"""The site's llms.txt: every page but the project's, with its first sentence.

    python scripts/make_llms.py      prints it

The site's build writes it beside the pages (`site_hooks.py`).
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LEFT_OUT = ("Project",)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_NOT_PROSE = re.compile(r"^(?:#|```|~~~|<|\||!\[|    |- |---|\d+\. )")
_SENTENCE = re.compile(r"(?<=[^.][.!?])\s+(?=[A-Z`\"])")


def iterate_pages(nav: list[Any], title: str = "") -> Iterator[tuple[str, str]]:
    """Yield each page of a navigation: its title, and its path below docs."""
    for entry in nav:
        if isinstance(entry, str):
            yield title, entry
            continue
        for name, inner in entry.items():
            if isinstance(inner, str):
                yield name, inner
            else:
                yield from iterate_pages(inner, name)


def find_first_sentence(text: str) -> str:
    """Return the first sentence of a page's prose, without marks."""
    body = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->|^```.*?^```$", "", body, flags=re.DOTALL | re.MULTILINE)
    blocks = (block.strip("\n") for block in re.split(r"\n\s*\n", body))
    prose = next((block for block in blocks if block and not _NOT_PROSE.match(block)), "")
    plain = " ".join(_LINK.sub(r"\1", prose).replace("**", "").split())
    return _SENTENCE.split(plain)[0]


def build_text(site: dict[str, Any], docs: Path) -> str:
    """Build the file from the site's settings and its pages."""
    parts = [f"# {site['site_name']}", f"> {site['site_description']}"]
    for entry in site["nav"]:
        ((title, inner),) = entry.items()
        if title in LEFT_OUT:
            continue
        pages = iterate_pages(inner if isinstance(inner, list) else [{title: inner}], title)
        lines = []
        for name, path in pages:
            place = re.sub(r"(^|/)index$", r"\1", path.removesuffix(".md"))
            address = f"{place.rstrip('/')}/" if place else "./"
            lines.append(f"- [{name}]({address}): {find_first_sentence((docs / path).read_text())}")
        parts.append(f"## {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    import yaml

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    sys.stdout.write(build_text(site, ROOT / site["docs_dir"]))
