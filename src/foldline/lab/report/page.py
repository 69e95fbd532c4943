"""A comparison as one HTML page: no scripts, no external files, light and dark.

Numbers and sentences are those of the terminal. The same comparison gives the same bytes.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from foldline.core.names import format_count
from foldline.lab.comparison import EVERYTHING, RECORDED, Compared, Comparison, Total, TrialFold
from foldline.lab.report import plots
from foldline.lab.report.plots import escape_text
from foldline.lab.report.sentences import (
    MEANINGS,
    REASONS,
    describe_basis,
    describe_cost,
    describe_folded,
    describe_small_sessions,
    format_change,
    format_dollar_amount,
    format_percent,
    format_token_count,
    list_caveats,
)

_DRAWN = 40  # sessions with plots: nobody would read more
_LISTED = 200  # rows of a table of folds or small sessions
_OTHERS = 6  # colours for policies besides the two baselines
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


def render_comparison_page(comparison: Comparison) -> str:
    """Render the page as HTML."""
    classes = _choose_classes([one.policy for one in comparison.totals])
    title = "foldline lab: policies compared"
    body = (
        *_render_opening(comparison),
        *_render_policies(comparison, classes),
        *_render_frontier(comparison, classes),
        *_render_money(comparison),
        *_render_sessions(comparison, classes),
        *_render_limits(comparison),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_SAFE}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_load_style()}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body).replace(" %", "\u00a0%")  # no line break before the sign
        + "\n</main>\n</body>\n</html>\n"
    )


@cache
def _load_style() -> str:
    return (files("foldline.lab.report") / "page.css").read_text(encoding="utf-8")


def _choose_classes(policies: Sequence[str]) -> dict[str, str]:
    others = [one for one in policies if one not in (RECORDED, EVERYTHING)]
    found = {name: f"p{at % _OTHERS + 1}" for at, name in enumerate(others)}
    return {RECORDED: "rec", EVERYTHING: "off", **found}


def _render_opening(comparison: Comparison) -> Iterable[str]:
    calls = sum(one.calls for one in comparison.sessions)
    yield (
        f'<p class="kicker">foldline lab · {format_count(len(comparison.sessions), "session")} · '
        f"{format_count(calls, 'call')}</p>"
    )
    yield f"<h1>{escape_text(describe_cost(comparison))}</h1>"
    more = (
        describe_basis(comparison),
        describe_folded(comparison),
        describe_small_sessions(comparison),
    )
    rest = " ".join(one for one in more if one)
    if rest:
        yield f'<p class="lead">{escape_text(rest)}</p>'
    yield f'<p class="warn">{escape_text(list_caveats(comparison)[0])}</p>'


def _render_policies(comparison: Comparison, classes: dict[str, str]) -> Iterable[str]:
    yield "<h2>The policies</h2>"
    yield (
        '<p class="note">Kept: of what the agent wrote again later, the share that was in the '
        "request when it wrote it. Read again: what one call more for each answer that reused what "
        "was out of sight would add to the cost.</p>"
    )
    heads = (
        *("policy", "cost", "change", "folds", "names kept", "lines kept"),
        *("read again", "largest request"),
    )
    rows = "".join(
        _render_policy_row(one, comparison, heads, classes[one.policy]) for one in comparison.totals
    )
    top = "".join(f"<th>{one}</th>" for one in heads)
    yield (
        f'<div class="card scroll"><table class="stack"><thead><tr>{top}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    shown = [one.policy for one in comparison.totals if one.policy in MEANINGS]
    said = "; ".join(f"<b>{one}</b>: {MEANINGS[one]}" for one in shown)
    yield f'<p class="note" style="margin-top:12px">{said}.</p>'


def _render_policy_row(
    one: Total, comparison: Comparison, heads: Sequence[str], colour: str
) -> str:
    base = one.policy == comparison.baseline
    tone = "base" if base else "less" if one.percent < 0 else "more"
    cells = (
        (f'<span class="swatch {colour}"></span>{escape_text(one.policy)}', ""),
        (format_dollar_amount(one.dollars), ""),
        ("baseline" if base else format_change(one.percent), tone),
        (f"{one.folds:,}", ""),
        (format_percent(one.kept_names), ""),
        (format_percent(one.kept_lines), ""),
        (f"+ {format_dollar_amount(one.recall_dollars)}", ""),
        (f"{one.peak:,}", ""),
    )
    row = "".join(
        f'<td data-label="{head}" class="{kind}">{cell}</td>'
        for head, (cell, kind) in zip(heads, cells, strict=True)
    )
    return (
        f'<tr class="chosen">{row}</tr>' if one.policy == comparison.chosen else f"<tr>{row}</tr>"
    )


def _render_frontier(comparison: Comparison, classes: dict[str, str]) -> Iterable[str]:
    yield "<h2>Cost against what stays in sight</h2>"
    yield (
        '<p class="note">Up is more in front of the model, left is cheaper. On the dashed line are '
        "the policies that no other beats in both.</p>"
    )
    figures = "".join(
        f'<figure class="card"><h3>{head}</h3>'
        f"{plots.draw_frontier(comparison.totals, classes, what=what)}</figure>"
        for what, head in (("names", "Names kept"), ("lines", "Long lines kept"))
    )
    yield f'<div class="pair">{figures}</div>'


def _render_money(comparison: Comparison) -> Iterable[str]:
    yield "<h2>Where the money goes</h2>"
    causes = [
        (cause, said)
        for cause, said in plots.CAUSES
        if any(getattr(one, f"{cause}_dollars") > 0 for one in comparison.totals)
    ]
    key = "".join(f'<li><i class="{cause}"></i>{said}</li>' for cause, said in causes)
    base = comparison.total_of(comparison.baseline)
    again = 100 * base.again_dollars / base.dollars if base.dollars else 0.0
    yield (
        '<div class="pair uneven"><figure class="card">'
        f'<ul class="key">{key}</ul>{plots.draw_cost_bars(comparison.totals)}</figure>'
        '<div><p class="note">Answers cost the same under every policy: they are the recorded '
        "ones. Everything else is what a policy can change.</p>"
        f'<p class="note">Written again is what the call before had sent too, and the cache had '
        f"lost or an edit had moved: {format_percent(again)} of "
        f"{escape_text(base.policy)}. A smaller request "
        "loses less each time.</p></div></div>"
    )


def _render_sessions(comparison: Comparison, classes: dict[str, str]) -> Iterable[str]:
    base, chosen = comparison.baseline, comparison.chosen
    notable = sorted(
        (one for one in comparison.sessions if one.folded),
        key=lambda one: (
            -abs(one.result_of(base).dollars - one.result_of(chosen).dollars),
            one.session,
        ),
    )
    if notable:
        yield "<h2>Session by session</h2>"
        yield (
            f'<p class="note">Where {escape_text(chosen)} changes most comes first. Dots below '
            "a plot are folds; a line that ends at the top goes on above the window.</p>"
        )
    for at, one in enumerate(notable[:_DRAWN]):
        yield _render_session(one, comparison, classes, first=not at)
    if len(notable) > _DRAWN:
        yield _render_short_list(notable[_DRAWN:], comparison, f"{len(notable) - _DRAWN:,} more")
    still = [one for one in comparison.sessions if not one.folded]
    if still:
        yield _render_short_list(
            still, comparison, f"{format_count(len(still), 'session')} too small to fold"
        )


def _render_session(
    one: Compared, comparison: Comparison, classes: dict[str, str], *, first: bool
) -> str:
    was, now = one.result_of(comparison.baseline), one.result_of(comparison.chosen)
    less = 100 * (now.dollars / was.dollars - 1) if was.dollars else 0.0
    policies = [each.policy for each in comparison.totals]
    key = "".join(
        f'<li><i class="{classes[name]}"></i>{escape_text(name)}</li>' for name in policies
    )
    model = f"{escape_text(one.model)} · " if one.model else ""
    paid = (
        f" · {format_dollar_amount(one.recorded_dollars)} by the recorded counts"
        if one.recorded_dollars is not None
        else " · no counts in the record"
    )
    ours = [name for name in policies if one.result_of(name).edits]
    return (
        f'<details class="session"{" open" if first else ""}><summary>'
        f'<span class="who">{escape_text(one.session)}</span>'
        f'<span class="soft calls">{format_count(one.calls, "call")}</span>'
        f"<span>{format_dollar_amount(was.dollars)} → {format_dollar_amount(now.dollars)}</span>"
        f"<span>{format_change(less)}</span>"
        f'<span class="soft count">{format_count(len(now.edits), "fold")}</span></summary>'
        f'<div class="inner"><p class="note">{model}window {one.window:,}{paid}</p>'
        f'<ul class="key">{key}</ul><div class="pair">'
        f"<figure><h3>Tokens of each call</h3>{plots.draw_sizes(one, policies, classes)}</figure>"
        f"<figure><h3>Dollars so far</h3>{plots.draw_spending(one, policies, classes)}</figure>"
        "</div>"
        + "".join(
            _render_folds(
                name, one.result_of(name).edits, open_=first and name == comparison.chosen
            )
            for name in ours
        )
        + "</div></details>"
    )


def _render_folds(policy: str, edits: Sequence[TrialFold], *, open_: bool) -> str:
    rows = "".join(
        f"<tr><td>{one.call + 1:,}</td><td>{one.messages:,}</td>"
        f"<td>{one.before:,} → {one.after:,}</td>"
        f'<td class="left why">{escape_text(REASONS.get(one.why, one.why))}</td></tr>'
        for one in edits[:_LISTED]
    )
    more = _render_rest_note(len(edits) - _LISTED)
    who = "the agent itself" if policy == RECORDED else escape_text(policy)
    gone, left = sum(one.before for one in edits), sum(one.after for one in edits)
    return (
        f'<details class="folds"{" open" if open_ else ""}><summary>What {who} folded '
        f"away: {format_count(len(edits), 'fold')}, {format_token_count(gone)} → "
        f"{format_token_count(left)} tokens</summary>"
        "<table><thead><tr><th>call</th><th>messages</th><th>tokens</th>"
        f'<th class="left">why</th></tr></thead><tbody>{rows}</tbody></table>{more}</details>'
    )


def _render_short_list(some: Sequence[Compared], comparison: Comparison, title: str) -> str:
    rows = "".join(
        f"<tr><td>{escape_text(one.session)}</td><td>{one.calls:,}</td>"
        f"<td>{format_dollar_amount(one.result_of(comparison.baseline).dollars)}</td>"
        f"<td>{format_dollar_amount(one.result_of(comparison.chosen).dollars)}</td></tr>"
        for one in some[:_LISTED]
    )
    more = _render_rest_note(len(some) - _LISTED)
    return (
        f'<details class="session"><summary><span class="who">{title}</span></summary>'
        '<div class="inner"><table class="plain"><thead><tr><th>session</th><th>calls</th>'
        f"<th>{escape_text(comparison.baseline)}</th><th>{escape_text(comparison.chosen)}</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>{more}</div></details>"
    )


def _render_rest_note(rest: int) -> str:
    return f'<p class="note">and {rest:,} more, in the JSON</p>' if rest > 0 else ""


def _render_limits(comparison: Comparison) -> Iterable[str]:
    yield "<h2>Method and limits</h2>"
    lines = "".join(
        f"<li>{escape_text(one)}</li>"
        for one in (*_METHOD.split("\n\n"), *list_caveats(comparison))
    )
    yield f'<ul class="limits">{lines}</ul>'
