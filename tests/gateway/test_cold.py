"""`X-Foldline-Cold`: the price of a request after a pause, against what the provider then charges."""

import http.client
import json
import shlex
import subprocess

import apsw
import pytest
from gateway_thread import Served
from scripted import start_provider
from upstream import prompt_of

from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.models.catalog import resolve_model

PAUSES = {"claude-sonnet-4-5": 400, "gpt-5": 4_000, "gpt-5.6": 2_000}
"""Seconds after which each one's provider has forgotten: five minutes, perhaps an hour, 30 minutes."""
TURNS, PATIENT = 6, "patient/1"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
RULE = (
    "Rule {}: an entry that is open stays open until somebody has said in writing who closes it. "
)
SYSTEM = "You keep a ledger. " + "".join(RULE.format(number) for number in range(200))
"""Prose: it has more letters to a token than the ledger's entries."""


def post(gateway, path, body, headers):
    """Post a body; returns the answer's, and its headers."""
    link = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    headers = {"content-type": "application/json", **headers}
    link.request("POST", path, json.dumps(body), headers)
    answer = link.getresponse()
    said = json.loads(answer.read())
    link.close()
    assert answer.status == 200, said
    return said, {name.lower(): value for name, value in answer.getheaders()}


class Client:
    """An agent with a shell: keeps its history, marks its cache as Anthropic asks, runs what it is told."""

    def __init__(self, model, *, lives="5m"):
        self.model, self.is_claude = model, model.startswith("claude")
        self.mark = {"type": "ephemeral", **({"ttl": lives} if lives != "5m" else {})}
        self.messages = []

    def copy(self):
        """Return another client with the same history."""
        other = Client(self.model)
        other.mark, other.messages = self.mark, [*self.messages]
        return other

    def build_body(self):
        """Build the next request."""
        if self.is_claude:
            tools = [{"name": "bash", "description": "Runs a command.", "input_schema": SCHEMA}]
            *before, last = self.messages
            content = last["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            marked = {**last, "content": [{**blocks[0], "cache_control": self.mark}, *blocks[1:]]}
            return {"model": self.model, "max_tokens": 4_000, "system": SYSTEM, "tools": tools,
                    "messages": [*before, marked]}  # fmt: skip
        function = {"name": "bash", "description": "Runs a command.", "parameters": SCHEMA}
        told = {"role": "system", "content": SYSTEM}
        return {"model": self.model, "messages": [told, *self.messages],
                "tools": [{"type": "function", "function": function}]}  # fmt: skip

    def ask(self, gateway, agent=PATIENT):
        """One call; returns the gateway's headers."""
        path = "/v1/messages" if self.is_claude else "/v1/chat/completions"
        headers = {"user-agent": agent, "x-api-key": "k"}
        said, told = post(gateway, path, self.build_body(), headers)
        if self.is_claude:
            self.messages.append({"role": "assistant", "content": said["content"]})
        else:
            self.messages.append(said["choices"][0]["message"])
        return told

    def list_calls(self):
        """List the calls of the newest answer: id and command."""
        last = self.messages[-1]
        if self.is_claude:
            blocks = (one for one in last["content"] if one["type"] == "tool_use")
            return [(one["id"], one["input"]["command"]) for one in blocks]
        calls = last.get("tool_calls") or ()
        return [(one["id"], json.loads(one["function"]["arguments"])["command"]) for one in calls]

    def run_calls(self, gateway):
        """Run what is called for until the model has answered; returns the headers of each call."""
        found = []
        while calls := self.list_calls():
            for known, command in calls:
                printed = subprocess.check_output(shlex.split(command), text=True)
                result = {"tool_use_id": known, "type": "tool_result", "content": printed}
                self.messages.append(
                    {"role": "user", "content": [result]}
                    if self.is_claude
                    else {"role": "tool", "tool_call_id": known, "content": printed}
                )
            found.append(self.ask(gateway))
        return found

    def say(self, gateway, number, agent=PATIENT):
        """Say something; returns the headers of the first call."""
        self.messages.append({"role": "user", "content": prompt_of(number)})
        return self.ask(gateway, agent)

    def take_turn(self, gateway, number):
        """Take a turn to its end; returns the headers of each call."""
        return [self.say(gateway, number), *self.run_calls(gateway)]


def read_prices(headers):
    header = headers.get("x-foldline-cold")
    pairs = (one.split("=") for one in header.split("; ")) if header else ()
    return {name: float(dollars) for name, dollars in pairs}


def charge(provider, model, *, write=None):
    """What the newest call's input cost, by the provider's own count: what is not read is written."""
    used, prices = provider.list_usage()[-1], resolve_model(model).prices
    if "prompt_tokens" in used:
        read = used["prompt_tokens_details"]["cached_tokens"]
        fresh, written = 0, used["prompt_tokens"] - read
    else:
        fresh, read = used["input_tokens"], used["cache_read_input_tokens"]
        written = used["cache_creation_input_tokens"]
    write = write or prices.write
    return (fresh * prices.input + read * prices.read + written * write) / 1e6


def age(path, seconds, *copies):
    """Make a store older than it is, and copy it."""
    store = apsw.Connection(str(path))
    store.execute("update events set time = time - ?", (seconds,))
    for copy in copies:
        store.execute("vacuum into ?", (str(copy),))
    store.close()


class Place:
    """A provider, and gateways before it: patient agents' requests are never folded."""

    def __init__(self, provider, folder):
        self.provider, self.folder = provider, folder
        self.audit = folder / "audit.jsonl"

    def open_gateway(self, name):
        """Open a gateway on a store."""
        upstreams = parse_upstreams([self.provider.url], {})
        settings = GatewaySettings(upstreams=upstreams, fold_from={PATIENT: 10_000_000})
        return Served(settings, store=str(self.folder / name), audit=self.audit)

    def read_audit(self):
        """Read what all gateways have noted."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def pause(self, seconds, *copies):
        """Let time pass for the provider and for the store, and copy that."""
        self.provider.expire_cache()
        age(self.folder / "a.db", seconds, *(self.folder / one for one in copies))


@pytest.fixture
def place(tmp_path):
    with start_provider(tmp_path, reports_cache=True, rounds=6) as provider:
        yield Place(provider, tmp_path)


@pytest.mark.parametrize("model", PAUSES)
def test_the_price_named_is_what_is_charged(model, place):
    """As it is, folded by hand before, folded by the policy, and had there been no pause: within 5 %."""
    client = Client(model)
    with place.open_gateway("a.db") as gateway:
        told = [one for turn in range(TURNS) for one in client.take_turn(gateway, turn + 1)]
        assert not any("x-foldline-cold" in one for one in told), "nobody has paused"
        session = told[-1]["x-foldline-session"]
    clients = {name: client.copy() for name in ("unfolded", "by hand", "by policy", "warm")}
    place.pause(0, "warm.db")
    with place.open_gateway("warm.db") as gateway:
        place.provider.expire_cache()
        client.ask(gateway)  # the same prompt: it is cached again
        assert read_prices(clients["warm"].say(gateway, 7)) == {}
        warm = charge(place.provider, model)
    place.pause(PAUSES[model], "b.db", "c.db")
    with place.open_gateway("a.db") as gateway:
        named = read_prices(clients["unfolded"].say(gateway, 7))
        cold = charge(place.provider, model)
        assert not any(map(read_prices, clients["unfolded"].run_calls(gateway)))
    assert [*named] == ["cost", "warm", "folded"]
    assert named["cost"] == pytest.approx(cold, rel=0.05)
    assert named["warm"] == pytest.approx(warm, rel=0.05)
    noted = [one for one in place.read_audit() if one["cold"]]
    assert [one["cold"] for one in noted] == [named], "the audit has it, once"
    place.provider.expire_cache()
    with place.open_gateway("b.db") as gateway:
        post(gateway, f"/sessions/{session}/fold", {}, gateway.headers)
        assert read_prices(clients["by hand"].say(gateway, 7)) == {}, (
            "what is sent now was never cached"
        )
        assert named["folded"] == pytest.approx(charge(place.provider, model), rel=0.05)
    place.provider.expire_cache()
    with place.open_gateway("c.db") as gateway:
        named = read_prices(clients["by policy"].say(gateway, 7, agent="other/1"))
    assert [*named] == ["cost", "warm", "unfolded"]
    assert named["cost"] == pytest.approx(charge(place.provider, model), rel=0.05)
    assert named["unfolded"] == pytest.approx(cold, rel=0.05)


def test_marks_of_an_hour_are_priced_and_kept_so(place):
    client = Client("claude-sonnet-4-5", lives="1h")
    with place.open_gateway("a.db") as gateway:
        for turn in range(3):
            client.take_turn(gateway, turn + 1)
    place.pause(3_500)
    with place.open_gateway("a.db") as gateway:
        assert read_prices(client.copy().say(gateway, 4, agent="other/1")) == {}, (
            "it lives for an hour"
        )
        assert place.read_audit()[-1]["edits"] == 0, "and it is not folded away"
        assert read_prices(client.copy().say(gateway, 4)) == {}
    place.pause(3_700)
    with place.open_gateway("a.db") as gateway:
        named = read_prices(client.say(gateway, 5))
    write = 2 * resolve_model(client.model).prices.input
    assert named["cost"] == pytest.approx(
        charge(place.provider, client.model, write=write), rel=0.05
    )
