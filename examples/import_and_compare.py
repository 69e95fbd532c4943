"""Sessions that other agents left on disk, replayed under several policies: cost and what is kept.

Start it:   pip install foldline
            python examples/import_and_compare.py ~/.claude/projects/*/*.jsonl

Reads Claude Code, Codex, pi, SWE-agent, and message lists of both dialects. No model is asked.
`foldline lab compare` does the same with more to say.
"""

import sys
from pathlib import Path

from foldline import FoldlineError, importers
from foldline.core.budget import UNKNOWN_WINDOW
from foldline.core.prices import UNKNOWN
from foldline.lab.comparison import Case, build_comparison, make_tasks, run_task
from foldline.lab.recorded import convert_imported
from foldline.lab.report.sentences import render_headline
from foldline.models.catalog import find

cases: list[Case] = []
for name in sys.argv[1:]:
    try:
        sessions = importers.read(Path(name).read_text(errors="replace"), name)
    except FoldlineError as fault:
        print(f"left out: {fault}")
        continue
    for session in sessions:
        known = find(session.model)
        cases.append(
            Case(
                convert_imported(session),
                known.prices,
                known.window or UNKNOWN_WINDOW,
                priced_as=session.model if known.prices != UNKNOWN else "",
            )
        )
        print(f"{session.name}: {len(session.events)} events of {session.model or 'some model'}")
if not cases:
    sys.exit(__doc__)

told = build_comparison(
    cases, [run_task(one) for one in make_tasks(cases, ["steady", "thrifty"], narratives=False)]
)
print(render_headline(told))
for total in told.totals:
    print(
        f"{total.policy:<10} ${total.dollars:8.4f}  folds {total.folds:3}  "
        f"names still in sight {total.kept_names:5.1f} %  largest call {total.peak:,} tokens"
    )
