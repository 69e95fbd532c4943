"""`history --over-time`: a session from its first call to its last, drawn.

Knows how a log is followed, and where the drawing goes. Refuses to know what is drawn.
"""

from pathlib import Path
from typing import Any

import msgspec

from foldline.apps.cli.context import Desk
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import columns
from foldline.apps.cli.show import write_picture
from foldline.apps.cli.store_location import sight
from foldline.core import log
from foldline.draw.course import Course, Following
from foldline.draw.course_svg import course_svg
from foldline.draw.course_terminal import course_terminal
from foldline.draw.course_words import finding
from foldline.draw.picture import picture
from foldline.models.overrides import believed
from foldline.session.session import AsyncSession
from foldline.stores import event_log


async def over_time(
    desk: Desk, seen: AsyncSession, *, vector: Path | None, pixels: Path | None
) -> int:
    """Draw every call of a session: to files, or here."""
    drawn = await _course(seen)
    written = write_picture(course_svg(drawn), vector=vector, pixels=pixels)
    body = {"session": seen.live.name.session, **_body(drawn), "written": written}
    desk.answer(
        body,
        lambda: (
            [f"wrote {one}" for one in written] or course_terminal(drawn, columns()).splitlines()
        ),
    )
    return DONE if drawn.steps else NOTHING


async def _course(seen: AsyncSession) -> Course:
    live = seen.live
    following = Following(picture(*sight(seen)), lambda model: believed(model).prices)
    async for row in event_log.walk(live.store, live.name, live.view.head):
        following.take(row.seq, log.decode(row.body))
    return following.course()


def _body(drawn: Course) -> dict[str, Any]:
    """A course as the document that scripts read."""
    paid, whole = drawn.dollars or (None, None)
    return {
        "finding": finding(drawn),
        "turns": drawn.turns,
        "window": drawn.now.window,
        "tiers": dict(drawn.now.tiers),
        "peak": drawn.peak,
        "counted": drawn.counted,
        "input": drawn.input,
        "read": drawn.read,
        "dollars": paid,
        "all_dollars": whole,
        "edits": {how: {"count": n, "tokens": gone} for how, (n, gone) in drawn.sums().items()},
        "calls": msgspec.to_builtins(drawn.steps),
    }
