"""The agent's own tools: what every agent of ours can do without a server.

    arguments     what a tool is called with, checked                      tools/arguments.py
    places        where a path leads; inside or outside of the root        tools/places.py
    rules         what an answer may be remembered for                     tools/rules.py
    files         `read` and `list`                                        tools/files.py
    writing       `write` and `edit`                                       tools/writing.py
    diffs         what becomes of a text, for who is asked                 tools/diffs.py
    markers       what stands where Foldline cut, and belongs in no file   tools/markers.py
    searching     `search`, by ripgrep or by a walk of our own             tools/searching.py
    walking       the files of a tree, without what git ignores            tools/walking.py
    shell         `shell`                                                  tools/shell.py
    past          `recall` and `search_history`                            tools/past.py

Knows which there are. What changes something says so before by an intent; what only looks says so
where it would look outside of the working folder. Refuses to know who is asked.
"""

from collections.abc import Collection
from pathlib import Path

from foldline.agent.tool import Tool
from foldline.agent.tools import files, past, searching, writing
from foldline.agent.tools import shell as shells
from foldline.agent.tools.places import Root
from foldline.run.session import AsyncSession


def own(  # noqa: PLR0913 - one keyword for each thing to decide
    session: AsyncSession,
    root: str | Path,
    *,
    write: bool = True,
    shell: bool = True,
    seconds: float = shells.MOST,
    keep: Collection[str] = (),
) -> list[Tool]:
    """The tools of an agent that works in a folder.

    Without `write` and `shell` it can only look. A command may take `seconds` at most, and is given
    the secrets of our environment that `keep` names.
    """
    here = Root(root)
    changing = [writing.write(here), writing.edit(here)] if write else []
    running = [shells.shell(here, most=seconds, keep=keep)] if shell else []
    return [
        files.reading(here),
        *changing,
        files.listing(here),
        searching.searching(here),
        *running,
        past.recall(session),
        past.search_history(session),
    ]
