"""Draw the first fold that the default makes in a recorded session: the README's picture.

    FOLDLINE_SHARED=../shared python scripts/draw_first_fold.py docs/pictures/fold

Replays the session as `just bench lab` does, with its own pauses and prices, and draws the request
in which the first fold was made, before and after. Prints the tokens of both.
"""

import os
import sys
from pathlib import Path

from foldline.apps.cli.show import write_picture
from foldline.core.budget import limits
from foldline.core.edits.fold import measure_loss
from foldline.core.log import Folded
from foldline.core.plan import Blocked, Facts, Ready, after
from foldline.core.policy import STEADY
from foldline.draw import build_picture
from foldline.draw.change_svg import change_svg
from foldline.lab.policy_run import Ours
from foldline.lab.replay import replay_session
from foldline.models.catalog import find

sys.path.append(str(Path(__file__).parents[1] / "benches"))

from sessions import pi

WINDOW = 200_000


class FirstFold(Ours):
    """Draws the first fold of a replay."""

    drawing = ""

    def plan(self, facts: Facts | None = None) -> Ready | Blocked:
        """Plan a request, and draw it if it is the first that is folded."""
        made = super().plan(facts)
        folds = (
            [one for one in made.events if isinstance(one, Folded)]
            if isinstance(made, Ready)
            else []
        )
        if folds and not self.drawing:
            before = build_picture(self.view, self.facts)
            then = build_picture(after(self.view, made.events), self.facts)
            self.drawing = change_svg(before, then, lost=measure_loss(self.view, folds[0]))
            sys.stdout.write(f"{before.total:,} tokens become {then.total:,}\n")
        return made


def main() -> int:
    """Draw to FILE.svg and FILE.png."""
    path = Path(sys.argv[1])
    recorded = pi(Path(os.environ["FOLDLINE_SHARED"]), "sonnet45")
    replayed = FirstFold(recorded, Facts(limits(WINDOW, None), STEADY, find(recorded.model).prices))
    replay_session(recorded, replayed)
    write_picture(
        replayed.drawing, vector=path.with_suffix(".svg"), pixels=path.with_suffix(".png")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
