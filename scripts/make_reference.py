"""Write docs/reference anew from the code: `just reference`. A test holds the pages to it.

.venv/bin/python scripts/make_reference.py
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import make_api
import make_chat_output
import make_commands
import make_errors
import make_events
import make_openapi
import make_papers
import make_requirements
import make_settings

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    **{name: partial(make_api.page, name) for name in make_api.PAGES},
    "chat-output.md": make_chat_output.page,
    "commands.md": make_commands.page,
    "errors.md": make_errors.page,
    "events.md": make_events.page,
    "openapi.md": make_openapi.page,
    "../papers.md": make_papers.page,
    "../requirements.md": make_requirements.page,
    "settings.md": make_settings.page,
}


if __name__ == "__main__":
    make_api.check()
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
