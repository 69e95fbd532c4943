"""What calls cost is one fact: every view of ours says what the provider's own bill says, to the cent and the call."""

import asyncio
import json
from decimal import Decimal
from random import Random

from bills import CENT, PRICES, Amount, list_differences, read_store
from counted import REQUESTS, CountingUpstream, Request, said_by
from gateway_thread import Served
from mutants import broken
from test_call_figures import post

from foldline.apps.cli.context import Desk
from foldline.apps.cli.run_agent import _build_report

AGENTS = {
    "claude": ("anthropic", "claude-opus-4-6"),
    "codex": ("openai-responses", "gpt-5"),
    "opencode": ("openai-chat", "gpt-5"),
    "gemini": ("gemini", "gemini-2.5-pro"),
    "qwen": ("openai-chat", "claude-opus-4-6"),
    "pi": ("openai-chat", "gpt-6.1-sol"),
}


def write_request(dialect, model, history, *, streams):
    """A request with a client's own history: pairs of what was said and what was answered."""
    path, field = REQUESTS[dialect]
    said = []
    for text, answer in history:
        said += [said_by(dialect, "user", text), said_by(dialect, "assistant", answer)]
    body = {field: said[:-1]}
    if dialect == "gemini":
        method = "streamGenerateContent?alt=sse" if streams else "generateContent"
        return Request(path.format(model=model, method=method), json.dumps(body).encode())
    body |= {"model": model, **({"stream": True} if streams else {})}
    if dialect == "openai-chat" and streams:
        body["stream_options"] = {"include_usage": True}
    body |= {"max_tokens": 1_000} if dialect == "anthropic" else {}
    body |= {"store": False} if dialect == "openai-responses" else {}
    return Request(path, json.dumps(body).encode())


def draw_histories(random, name, requests):
    """The histories of an agent's requests: they go on, come back changed, continued, forked, and beside others."""
    history = [(f"{name} starts with a task of its own", "ok")]
    if random.random() < 0.5:  # `--continue`: the log has seen nothing of this
        history += [(f"{name} went on {n}", f"an earlier answer {n}") for n in range(3)]
    for number in range(requests):
        kind = random.choice(("on", "changed", "changed", "side", "back"))
        if kind == "side":
            yield [(f"{name}: a title for {number}, please", "ok")]
            continue
        if kind == "changed" and len(history) > 1:
            at = random.randrange(len(history))
            history[at] = (history[at][0], f"{history[at][1]} and replace_all {number}")
        if kind == "back" and len(history) > 2:
            history = history[: random.randrange(1, len(history))]
        history = [*history, (f"{name} asks {number}", "ok")]
        yield history


def price_exactly(model, usage):
    """Of a usage as we draw it, by the provider's list."""
    fresh = usage.input - usage.cache_read - usage.cache_write
    each = zip(
        PRICES[model], (fresh, usage.cache_read, usage.cache_write, 0, usage.output), strict=True
    )
    return sum(Decimal(price) * tokens for price, tokens in each) / 1_000_000


def run_agents(place, seed, requests):
    """Take six agents through a gateway; the provider's bill, and each view of ours."""
    random, models = Random(seed), []
    address, audit = str(place / "s.db"), place / "audit"
    with CountingUpstream(seed) as upstream, Served(upstream.url, store=address, audit=audit) as gateway:  # fmt: skip
        for name, (dialect, model) in AGENTS.items():
            for history in draw_histories(random, name, requests):
                streams = random.random() < 0.5
                answer = post(gateway.port, write_request(dialect, model, history, streams=streams))
                assert answer.status == 200
                models.append(model)
    paid = sum(map(price_exactly, models, upstream.given), Decimal(0))
    output = sum(usage.output for usage in upstream.given)
    return Amount(paid, len(models), output), read_all(address, audit)


def read_all(address, audit):
    """Every view of a store, and the screen of the run that made it."""
    views = asyncio.run(read_store(address, "local"))
    figures = asyncio.run(_build_report(Desk(address), audit, 0.0, None))
    return {**views, "screen": Amount(Decimal(str(figures.dollars)), figures.calls)}


def test_every_view_says_what_the_provider_billed(tmp_path):
    """Also where answers came back in a client's history, changed or never seen, and of forks."""
    provider, views = run_agents(tmp_path, 1, 8)
    assert {*views} == {"cost", "over time", "history", "pages", "lab", "usage", "screen"}
    assert list_differences(provider, views) == []
    assert all(abs(one.dollars - provider.dollars) < CENT / 1_000 for one in views.values() if one.dollars)  # fmt: skip
    line, instead = "is_call = self._asked is not None or self._is_import", "is_call = True"
    with broken("foldline.session.ledger", line, instead):
        assert list_differences(provider, read_all(str(tmp_path / "s.db"), tmp_path / "audit"))
