"""The agent's own tools, which need no server.

    edit_files        The tools `write` and `edit`
    permission_rules  How rules are written, and what they allow or forbid
    read_files        The tools `read` and `list`, and what all file tools share
    recall_tools      The tools `recall` and `search_history`
    search_files      The tool `search`
    shell             The tool `shell`

A tool that changes something, or looks outside the working folder, says so first by an intent.
"""

from collections.abc import Collection
from pathlib import Path

from foldline.agent.tool import Tool
from foldline.agent.tools import edit_files, read_files, recall_tools, search_files
from foldline.agent.tools import shell as shells
from foldline.agent.tools.read_files import Root
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
    """Build the tools of an agent that works in a folder.

    Without `write` and `shell` it can only look. A command may take `seconds` at most, and gets
    those secrets of our environment that `keep` names.
    """
    here = Root(root)
    changing = (
        [edit_files.build_write_tool(here), edit_files.build_edit_tool(here)] if write else []
    )
    running = [shells.build_shell_tool(here, most=seconds, keep=keep)] if shell else []
    return [
        read_files.build_read_tool(here),
        *changing,
        read_files.build_list_tool(here),
        search_files.build_search_tool(here),
        *running,
        recall_tools.build_recall_tool(session),
        recall_tools.search_history(session),
    ]
