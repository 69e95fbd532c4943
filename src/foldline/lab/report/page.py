"""A comparison as one page: no scripts, nothing from elsewhere, by day and by night.

Knows HTML. Refuses to compute: numbers and sentences are those of the terminal. The same comparison
gives the same bytes.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from foldline.core.saying import many
from foldline.draw.text import clean
from foldline.lab.comparison import EVERYTHING, RECORDED, Compared, Comparison, Total
from foldline.lab.report import plots
from foldline.lab.report.sentences import (
    MEANINGS,
    REASONS,
    caveats,
    change,
    cost,
    dollars,
    lost,
    percent,
    small,
    tokens,
)
from foldline.lab.trials import TrialFold

_DRAWN = 40  # sessions with plots of their own: more would be read by nobody
_LISTED = 200  # folds, and small sessions, in one table
_OTHERS = 6  # colours for policies besides the two that all are compared with
_SAFE = "default-src 'none'; style-src 'unsafe-inline'"
_METHOD = """
Every session is replayed call by call. Before each recorded answer the policy says what it would
have sent; the answer is then the recorded one, whatever was sent.

The bill is simulated: a call reads the longest beginning that it shares with the call before,
unless the cache had expired or the record says that it was missed; the rest is written.

Names and lines kept: whatever an answer wrote that had occurred before is looked for, letter by
letter, in the request of that call. Names are those that look like code; lines those of 25 letters
and more. A name that stood there in another form is not found, even where everything is sent.

An agent that sees less may look things up again, or recall them. Neither is in these numbers.
"""


def page(told: Comparison) -> str:
    """The page's text."""
    classes = _classes([one.policy for one in told.totals])
    title = "foldline lab: policies compared"
    body = (
        *_opening(told),
        *_policies(told, classes),
        *_frontier(told, classes),
        *_money(told),
        *_sessions(told, classes),
        *_limits(told),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_SAFE}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body).replace(" %", "\u00a0%")  # no line begins with the sign
        + "\n</main>\n</body>\n</html>\n"
    )


@cache
def _style() -> str:
    return (files("foldline.lab.report") / "page.css").read_text(encoding="utf-8")


def _classes(policies: Sequence[str]) -> dict[str, str]:
    others = [one for one in policies if one not in (RECORDED, EVERYTHING)]
    found = {name: f"p{at % _OTHERS + 1}" for at, name in enumerate(others)}
    return {RECORDED: "rec", EVERYTHING: "off", **found}


def _opening(told: Comparison) -> Iterable[str]:
    calls = sum(one.calls for one in told.sessions)
    yield (
        f'<p class="kicker">foldline lab · {many(len(told.sessions), "session")} · '
        f"{many(calls, 'call')}</p>"
    )
    yield f"<h1>{_safe(cost(told))}</h1>"
    rest = " ".join(one for one in (lost(told), small(told)) if one)
    if rest:
        yield f'<p class="lead">{_safe(rest)}</p>'
    yield f'<p class="warn">{_safe(caveats(told)[0])}</p>'


def _policies(told: Comparison, classes: dict[str, str]) -> Iterable[str]:
    yield "<h2>The policies</h2>"
    yield (
        '<p class="note">Kept: of what the agent wrote again later, the share that was in the '
        "request when it wrote it.</p>"
    )
    heads = ("policy", "cost", "change", "folds", "names kept", "lines kept", "largest request")
    rows = "".join(_policy(one, told, heads, classes[one.policy]) for one in told.totals)
    top = "".join(f"<th>{one}</th>" for one in heads)
    yield (
        f'<div class="card scroll"><table class="stack"><thead><tr>{top}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    shown = [one.policy for one in told.totals if one.policy in MEANINGS]
    said = "; ".join(f"<b>{one}</b>: {MEANINGS[one]}" for one in shown)
    yield f'<p class="note" style="margin-top:12px">{said}.</p>'


def _policy(one: Total, told: Comparison, heads: Sequence[str], colour: str) -> str:
    base = one.policy == told.baseline
    tone = "base" if base else "less" if one.percent < 0 else "more"
    cells = (
        (f'<span class="swatch {colour}"></span>{_safe(one.policy)}', ""),
        (dollars(one.dollars), ""),
        ("baseline" if base else change(one.percent), tone),
        (f"{one.folds:,}", ""),
        (percent(one.kept_names), ""),
        (percent(one.kept_lines), ""),
        (f"{one.peak:,}", ""),
    )
    row = "".join(
        f'<td data-label="{head}" class="{kind}">{cell}</td>'
        for head, (cell, kind) in zip(heads, cells, strict=True)
    )
    return f'<tr class="chosen">{row}</tr>' if one.policy == told.chosen else f"<tr>{row}</tr>"


def _frontier(told: Comparison, classes: dict[str, str]) -> Iterable[str]:
    yield "<h2>Cost against what stays in sight</h2>"
    yield (
        '<p class="note">Up is more in front of the model, left is cheaper. On the dashed line are '
        "the policies that no other beats in both.</p>"
    )
    figures = "".join(
        f'<figure class="card"><h3>{head}</h3>'
        f"{plots.frontier(told.totals, classes, what=what)}</figure>"
        for what, head in (("names", "Names kept"), ("lines", "Long lines kept"))
    )
    yield f'<div class="pair">{figures}</div>'


def _money(told: Comparison) -> Iterable[str]:
    yield "<h2>Where the money goes</h2>"
    causes = [
        (cause, said)
        for cause, said in plots.CAUSES
        if any(getattr(one, f"{cause}_dollars") > 0 for one in told.totals)
    ]
    key = "".join(f'<li><i class="{cause}"></i>{said}</li>' for cause, said in causes)
    base = told.total(told.baseline)
    again = 100 * base.again_dollars / base.dollars if base.dollars else 0.0
    yield (
        '<div class="pair uneven"><figure class="card">'
        f'<ul class="key">{key}</ul>{plots.money(told.totals)}</figure>'
        '<div><p class="note">Answers cost the same under every policy: they are the recorded '
        "ones. Everything else is what a policy can change.</p>"
        f'<p class="note">Written again is what the call before had sent too, and the cache had '
        f"lost or an edit had moved: {percent(again)} of {_safe(base.policy)}. A smaller request "
        "loses less each time.</p></div></div>"
    )


def _sessions(told: Comparison, classes: dict[str, str]) -> Iterable[str]:
    base, chosen = told.baseline, told.chosen
    notable = sorted(
        (one for one in told.sessions if one.folded),
        key=lambda one: (-abs(one.under(base).dollars - one.under(chosen).dollars), one.session),
    )
    if notable:
        yield "<h2>Session by session</h2>"
        yield (
            f'<p class="note">Where {_safe(chosen)} changes most comes first. Dots below a plot '
            "are folds; a line that ends at the top goes on above the window.</p>"
        )
    for at, one in enumerate(notable[:_DRAWN]):
        yield _session(one, told, classes, first=not at)
    if len(notable) > _DRAWN:
        yield _short(notable[_DRAWN:], told, f"{len(notable) - _DRAWN:,} more")
    still = [one for one in told.sessions if not one.folded]
    if still:
        yield _short(still, told, f"{many(len(still), 'session')} too small to fold")


def _session(one: Compared, told: Comparison, classes: dict[str, str], *, first: bool) -> str:
    was, now = one.under(told.baseline), one.under(told.chosen)
    less = 100 * (now.dollars / was.dollars - 1) if was.dollars else 0.0
    policies = [each.policy for each in told.totals]
    key = "".join(f'<li><i class="{classes[name]}"></i>{_safe(name)}</li>' for name in policies)
    model = f"{_safe(one.model)} · " if one.model else ""
    paid = (
        f" · {dollars(one.recorded_dollars)} by the recorded counts"
        if one.recorded_dollars is not None
        else " · no counts in the record"
    )
    ours = [name for name in policies if one.under(name).edits]
    return (
        f'<details class="session"{" open" if first else ""}><summary>'
        f'<span class="who">{_safe(one.session)}</span>'
        f'<span class="soft calls">{many(one.calls, "call")}</span>'
        f"<span>{dollars(was.dollars)} → {dollars(now.dollars)}</span>"
        f"<span>{change(less)}</span>"
        f'<span class="soft count">{many(len(now.edits), "fold")}</span></summary>'
        f'<div class="inner"><p class="note">{model}window {one.window:,}{paid}</p>'
        f'<ul class="key">{key}</ul><div class="pair">'
        f"<figure><h3>Tokens of each call</h3>{plots.sizes(one, policies, classes)}</figure>"
        f"<figure><h3>Dollars so far</h3>{plots.spent(one, policies, classes)}</figure></div>"
        + "".join(
            _folds(name, one.under(name).edits, open_=first and name == told.chosen)
            for name in ours
        )
        + "</div></details>"
    )


def _folds(policy: str, edits: Sequence[TrialFold], *, open_: bool) -> str:
    rows = "".join(
        f"<tr><td>{one.call + 1:,}</td><td>{one.messages:,}</td>"
        f"<td>{one.before:,} → {one.after:,}</td>"
        f'<td class="left why">{_safe(REASONS.get(one.why, one.why))}</td></tr>'
        for one in edits[:_LISTED]
    )
    more = _more(len(edits) - _LISTED)
    who = "the agent itself" if policy == RECORDED else _safe(policy)
    gone, left = sum(one.before for one in edits), sum(one.after for one in edits)
    return (
        f'<details class="folds"{" open" if open_ else ""}><summary>What {who} folded '
        f"away: {many(len(edits), 'fold')}, {tokens(gone)} → {tokens(left)} tokens</summary>"
        "<table><thead><tr><th>call</th><th>messages</th><th>tokens</th>"
        f'<th class="left">why</th></tr></thead><tbody>{rows}</tbody></table>{more}</details>'
    )


def _short(some: Sequence[Compared], told: Comparison, title: str) -> str:
    rows = "".join(
        f"<tr><td>{_safe(one.session)}</td><td>{one.calls:,}</td>"
        f"<td>{dollars(one.under(told.baseline).dollars)}</td>"
        f"<td>{dollars(one.under(told.chosen).dollars)}</td></tr>"
        for one in some[:_LISTED]
    )
    more = _more(len(some) - _LISTED)
    return (
        f'<details class="session"><summary><span class="who">{title}</span></summary>'
        '<div class="inner"><table class="plain"><thead><tr><th>session</th><th>calls</th>'
        f"<th>{_safe(told.baseline)}</th><th>{_safe(told.chosen)}</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>{more}</div></details>"
    )


def _more(rest: int) -> str:
    return f'<p class="note">and {rest:,} more, in the JSON</p>' if rest > 0 else ""


def _limits(told: Comparison) -> Iterable[str]:
    yield "<h2>Method and limits</h2>"
    lines = "".join(f"<li>{_safe(one)}</li>" for one in (*_METHOD.split("\n\n"), *caveats(told)))
    yield f'<ul class="limits">{lines}</ul>'


def _safe(text: str) -> str:
    """What others wrote, as letters and nothing else."""
    return escape(clean(text))
