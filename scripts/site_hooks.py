"""Hooks of the site: what its pages say otherwise where they are read in the repository.

A link to a file of the repository that is no page is right there, and leads nowhere on the site.
Here it becomes its words and the file's path, or, where `extra.source` of mkdocs.yml has the
address under which the repository's files are shown, a link to there. A file that is not there is a
warning, and so an error of the build. Pages of the project are left out of the site's search, and
signatures on the pages of the API are coloured as Python. Beside the pages stands llms.txt.
"""

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

from make_llms import build_text

_LOG = logging.getLogger("mkdocs.hooks.site_hooks")
_LINK = re.compile(r"(?<!!)\[(?P<words>[^\[\]]+)\]\((?P<to>\.\./[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_PROJECT = ("decisions/", "papers.md", "requirements.md")
"""Pages for those who work on Foldline: a search of the site leaves them out."""
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page as the site shows it."""
    if page.file.src_uri.startswith(_PROJECT):
        page.meta["search"] = {"exclude": True}
    if page.file.src_uri.startswith("reference/api"):
        markdown = markdown.replace("```text\n", "```python\n")
    docs = Path(config["docs_dir"])
    here, root = docs / page.file.src_uri, Path(config["config_file_path"]).parent
    source = (config["extra"] or {}).get("source", "")

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(here.parent / found["to"]))
        if target.is_relative_to(docs):
            return found[0]
        if not target.exists() or not target.is_relative_to(root):
            _LOG.warning("%s links to %s, which is not there", page.file.src_uri, found["to"])
            return found[0]
        path = target.relative_to(root).as_posix()
        if source:
            return f"[{found['words']}]({source.rstrip('/')}/{path}{found['anchor'] or ''})"
        words = found["words"]
        return f"`{path}`" if path.endswith(words.strip("`")) else f"{words} (`{path}`)"

    made, end = "", 0
    for fence in _FENCE.finditer(markdown):
        made += _LINK.sub(link, markdown[end : fence.start()]) + fence[0]
        end = fence.end()
    return made + _LINK.sub(link, markdown[end:])


def on_post_build(*, config: Any, **_: Any) -> None:
    """Write llms.txt beside the pages."""
    text = build_text(dict(config), Path(config["docs_dir"]))
    (Path(config["site_dir"]) / "llms.txt").write_text(text)
