"""The agent's own tools: what every agent of ours can do without a server.

    arguments  What a tool is called with: its JSON Schema, and a model's arguments, checked
    diffs      Diffs: what becomes of a text, as people read it
    files      Looking at files: `read` and `list`
    markers    Markers
    past       The past of the session: `recall` and `search_history`
    places     Places
    rules      Rules: what an answer may be remembered for, and what such a rule lets through
    searching  Searching files
    shell      The shell: `shell` runs a command and gives back what it printed
    walking    Walking a tree: its files in order, without what nobody looks for
    writing    Changing files: `write` and `edit`

Knows which there are. What changes something says so before by an intent; what only looks says so
where it would look outside of the working folder. Refuses to know who is asked.
"""

from collections.abc import Collection
from pathlib import Path

from foldline.agent.tool import Tool
from foldline.agent.tools import files, past, searching, writing
from foldline.agent.tools import shell as shells
from foldline.agent.tools.places import Root
from foldline.session.session import AsyncSession


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
