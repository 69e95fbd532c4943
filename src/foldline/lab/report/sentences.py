"""A comparison in sentences, for the terminal and the page: results, assumptions, caveats."""

from collections import Counter
from collections.abc import Sequence

from foldline.core.names import format_count
from foldline.core.prices import Prices
from foldline.lab.comparison import EVERYTHING, RECORDED, Compared, Comparison

_LEAST = 0.005  # dollars: smaller amounts are not rounded to cents
_EQUAL = 0.5  # percent: a smaller difference is none
_SHOWN = 3  # entries of a list that are named
_QUALITY = (
    "Quality is not measured: no model was asked, every answer is the recorded one. What was "
    "out of sight is exact text; whether it would have been missed is not known."
)
MEANINGS = {
    RECORDED: "the calls as they were made, billed by the simulator",
    EVERYTHING: "all of the conversation in every call, however large",
}
REASONS = {
    "": "the agent's own compaction",
    "forced": "the window was counted as nearly full",
    "full": "the window was full, and nobody had agreed to a fold",
    "pays": "cheaper than reading on",
    "cold": "the cache was cold anyway",
    "due": "the policy's own rule",
}


def render_headline(comparison: Comparison) -> str:
    """Say what it cost, what it would have cost, and what would have been folded."""
    said = (describe_cost(comparison), describe_basis(comparison), describe_folded(comparison))
    return " ".join(one for one in said if one)


def describe_cost(comparison: Comparison) -> str:
    """Say in one sentence what it cost, and what it would have cost."""
    mine = comparison.total_of(comparison.chosen)
    first = f"{describe_sessions(comparison.sessions)} cost {format_dollar_amount(comparison.paid)}"
    if comparison.baseline == EVERYTHING:
        first = (
            f"{describe_sessions(comparison.sessions)}, with everything sent in every call, would "
            f"cost {format_dollar_amount(comparison.paid)}"
        )
    if mine.policy == EVERYTHING:
        return f"{first}."
    they = "it" if len(comparison.sessions) == 1 else "they"
    now = f"{format_dollar_amount(comparison.predicted)} ({format_change(mine.percent)})"
    unfit = (
        f", without {format_count(mine.blocked, 'call')} that no fold makes fit"
        if mine.blocked
        else ""
    )
    return f"{first}; with {mine.policy} {they} would have cost {now}{unfit}."


def describe_sessions(sessions: Sequence[Compared]) -> str:
    """Say how many sessions there are, and of which agents if that is known of all."""
    said = format_count(len(sessions), "session")
    agents = [name for name, _ in Counter(one.agent for one in sessions).most_common()]
    if "" in agents:
        return said
    *most, last = agents
    return f"{said} of {', '.join(most)} and {last}" if most else f"{said} of {last}"


def describe_basis(comparison: Comparison) -> str:
    """Say where both amounts come from."""
    if comparison.baseline == EVERYTHING:
        guessed = (
            not any(case.priced_as for case in comparison.sessions)
            and "prices" not in comparison.fixed
        )
        return f"That is simulated{', at assumed prices' if guessed else ''}."
    some = len(comparison.sessions) - comparison.counted
    where = f" for {comparison.counted:,} of them, the rest is simulated" if some else ""
    billed = format_dollar_amount(comparison.total_of(RECORDED).dollars)
    now = (
        ""
        if comparison.chosen == EVERYTHING
        else ", and the other amount is in proportion to its bills"
    )
    return f"The cost is by the recorded counts{where}; the simulator says {billed}{now}."


def describe_folded(comparison: Comparison) -> str:
    """Say what the chosen policy would have folded."""
    mine = comparison.total_of(comparison.chosen)
    if mine.policy == EVERYTHING:
        return ""
    if not mine.folds:
        only = ", only shortened results" if abs(mine.percent) >= _EQUAL else ""
        return f"It would have folded nothing away{only}."
    return (
        f"This is what it would have folded away: in {format_count(mine.folds, 'fold')}, "
        f"{format_token_count(mine.tokens_folded)} tokens gave way to "
        f"{format_token_count(mine.tokens_left)}. "
        f"Of the names that the agent wrote again later, {format_percent(100 - mine.kept_names)} "
        f"were then out of its sight, of long lines {format_percent(100 - mine.kept_lines)}; "
        "all of it stays in the log, one recall away. Reading it back by a call each time would "
        f"have cost {format_dollar_amount(mine.recall_dollars)} more, in "
        f"{format_count(mine.recalls, 'call')}."
    )


def describe_small_sessions(comparison: Comparison) -> str:
    """Say how many sessions are too small to fold."""
    if not comparison.small or comparison.chosen == EVERYTHING:
        return ""
    if comparison.small == len(comparison.sessions):
        who = "This session is" if comparison.small == 1 else "All of these sessions are"
        return f"{who} too small to fold for any policy that was compared."
    who = (
        "is too small to fold; it is"
        if comparison.small == 1
        else "are too small to fold; they are"
    )
    return f"{comparison.small:,} of them {who} in every sum."


def list_caveats(comparison: Comparison) -> list[str]:
    """List what a reader must know before believing the numbers."""
    found = [_QUALITY]
    sessions = comparison.sessions
    estimated = [one for one in sessions if not one.counts]
    if estimated:
        found.append(
            f"{_describe_share(estimated, sessions)} without the provider's counts: tokens are "
            "estimated, and what a file does not tell (system, tools, thoughts) is not in them."
        )
    undated = [one for one in sessions if not one.dated]
    if undated:
        found.append(
            f"{_describe_share(undated, sessions)} without times: the cache is taken to be warm "
            "at every call."
        )
    found += [*_list_price_caveats(comparison), *_list_window_caveats(comparison)]
    everything = comparison.total_of(EVERYTHING)
    if everything.over:
        found.append(
            f"{EVERYTHING}: {format_count(everything.over, 'call')} larger than the window, which "
            "a provider would have refused; counted at what it would cost if it had not."
        )
    blocked = [one for one in comparison.totals if one.blocked]
    found += [
        f"{one.policy}: {format_count(one.blocked, 'call')} could not be made to fit the window; "
        "they are not in its cost."
        for one in blocked
    ]
    if comparison.narratives:
        found.append(
            "Folds ask the session's own model for a summary where the policy wants one: its cost "
            "is billed, its words are scripted."
        )
    else:
        found.append("Folds are made without a model; --narratives bills summaries by one.")
    return found


def _list_price_caveats(comparison: Comparison) -> list[str]:
    sessions = comparison.sessions
    if "prices" in comparison.fixed:
        return [
            f"Prices as given: {format_prices(sessions[0].prices)}.",
            *_list_step_caveats(sessions),
        ]
    unknown = [one for one in sessions if not one.priced_as]
    known = {one.priced_as: one.prices for one in sessions if one.priced_as}
    listed = [f"{name} {format_prices(prices)}" for name, prices in sorted(known.items())]
    found: list[str] = []
    if listed:
        more = f", and {len(listed) - _SHOWN:,} more" if len(listed) > _SHOWN else ""
        found.append(f"Prices of the catalogue: {'; '.join(listed[:_SHOWN])}{more}.")
    if unknown:
        found.append(
            f"{_describe_share(unknown, sessions)} of a model that the catalogue has no price of: "
            f"{format_prices(unknown[0].prices)} is assumed; --prices sets them."
        )
    guessed = sorted({one.priced_as for one in sessions if one.priced_as and one.prices.assumed})
    if guessed:
        found.append(f"Cached reads are assumed at a tenth of input for {', '.join(guessed)}.")
    return [*found, *_list_step_caveats(sessions)]


def _list_step_caveats(sessions: Sequence[Compared]) -> list[str]:
    stepped = sorted({one.priced_as for one in sessions if _has_long_requests(one)})
    if not stepped:
        return []
    said = f"Long requests are billed at the higher input prices of {', '.join(stepped)}; what"
    return [f"{said} answers cost more there is not in the catalogue."]


def _has_long_requests(session: Compared) -> bool:
    """Whether any request was large enough for the higher prices."""
    step, above = session.prices.step, session.prices.above
    if step is None or above <= 1:
        return False
    return any(size > step for result in session.results for size in result.sizes)


def _list_window_caveats(comparison: Comparison) -> list[str]:
    if "window" in comparison.fixed:
        return [f"Window as given: {comparison.sessions[0].window:,} tokens."]
    unknown = [one for one in comparison.sessions if one.window_assumed]
    if not unknown:
        return []
    who = _describe_share(unknown, comparison.sessions)
    size = f"{unknown[0].window:,} tokens are assumed; --window sets it."
    return [f"{who} of a model whose window is not known: {size}"]


def _describe_share(some: Sequence[Compared], every: Sequence[Compared]) -> str:
    if len(some) == len(every):
        return "The session is" if len(every) == 1 else f"All {len(every):,} sessions are"
    return f"{len(some):,} of {len(every):,} sessions {'is' if len(some) == 1 else 'are'}"


def format_prices(prices: Prices) -> str:
    """Format the four prices."""
    four = (prices.input, prices.read, prices.write, prices.output)
    said = (f"${round(one, 4):g}" for one in four)
    return "{} in, {} read, {} written, {} out per million".format(*said)


def format_dollar_amount(amount: float) -> str:
    """Format dollars; small amounts get more digits."""
    if amount >= 1_000:  # noqa: PLR2004
        return f"${amount:,.0f}"
    return f"${amount:,.2f}" if amount >= 1 or amount < _LEAST / 100 else f"${amount:.3f}"


def format_change(share: float) -> str:
    """Format a difference in percent, with its sign."""
    if abs(share) < _EQUAL:
        return "±0 %"
    return f"{'+' if share > 0 else '−'}{abs(share):,.0f} %"  # noqa: RUF001 - a minus, not a dash


def format_percent(share: float) -> str:
    """Format a share; never rounds to 0 or 100 %."""
    if 0 < share < 0.1:  # noqa: PLR2004
        return "< 0.1 %"
    if 99.9 < share < 100:  # noqa: PLR2004
        return "> 99.9 %"
    return f"{share:.1f} %"


def format_token_count(count: float) -> str:
    """Format a token count: 12k, 1.2M."""
    if count >= 999_500:  # noqa: PLR2004
        return f"{count / 1e6:.1f}M"
    return f"{count / 1e3:,.0f}k" if count >= 9_950 else f"{count:,.0f}"  # noqa: PLR2004
