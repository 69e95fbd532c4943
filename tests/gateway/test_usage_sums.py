"""Sums over the audit lines, over usage and at the provider are the same: several processes, one killed. G-5."""

import asyncio
import json
import os
import re
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from itertools import chain
from random import Random

import pytest
from counted import REQUESTS, CountingUpstream, make_request
from program import PROGRAM
from serving import a_schema, address_of

from foldline.apps.gateway.api_keys import create_key
from foldline.session import usage_records
from foldline.session.usage_records import group_usage, read_usage
from foldline.stores.open_store import store_at

COUNTS = ("calls", "input", "output", "cache_read", "cache_write")
MODELS = {"openai-chat": "gpt-5.1", "anthropic": "claude-opus-4-6", "openai-responses": "gpt-5.1"}
FLUSHED = usage_records.EVERY + 2.5


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
def address(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "s.db")
        return
    with a_schema() as schema:
        yield address_of(schema)


@contextmanager
def gateway(number, address, upstream, folder):
    """A gateway as a process; its port, and the process."""
    audit = folder / f"audit{number}"
    server = subprocess.Popen(
        [PROGRAM, "serve", "--upstream", upstream, "--port", "0", "--store", address,
         "--keys", folder / "keys", "--audit", audit, "--drain", "2"],
        cwd=folder, env={**os.environ, "FOLDLINE_UPSTREAM_KEY": "sk-up"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        shown = ""
        while "pages" not in shown:
            line = server.stdout.readline()
            assert line, shown
            shown += line
        yield int(re.search(r":(\d+)/v1", shown)[1]), server
    finally:
        server.terminate()
        server.wait(30)
        server.stdout.close()


def post(port, request, key):
    client = HTTPConnection("127.0.0.1", port, timeout=60)
    head = {"content-type": "application/json", "x-foldline-key": key, "accept-encoding": "gzip"}
    client.request("POST", request.path, request.body, head)
    answer = client.getresponse()
    answer.read()
    client.close()
    assert answer.status == 200


def read_lines(folder):
    """The audit lines of every process that asked a model."""
    files = sorted(folder.glob("audit*"))
    lines = [[json.loads(one) for one in file.read_text().splitlines()] for file in files]
    return [[one for one in own if "input" in one] for own in lines]


def sum_lines(lines):
    lines = [*lines]
    return Counter({name: sum(line[name] for line in lines) for name in COUNTS})


async def sum_rows(address, tenant, by=()):
    store = store_at(address)
    try:
        rows = await read_usage(store, tenant, since=time.time() - 7_200)
        return {
            total.values: Counter({name: getattr(total.sums, name) for name in COUNTS})
            for total in group_usage(rows, by)
        }
    finally:
        await store.close()


def test_sums_are_those_of_the_provider(address, tmp_path):
    """A killed process loses at most what came since its last flush; its lines are in the audit."""
    owners = ("alice", "bob")
    keys = {name: create_key(tmp_path / "keys", name, tenant="acme") for name in owners}
    random = Random(1)
    with CountingUpstream(11) as upstream, ExitStack() as stack:
        places = [
            stack.enter_context(gateway(number, address, upstream.url, tmp_path))
            for number in range(3)
        ]

        def talk(number, turns=4):
            said, dialect = [f"talk {number}"], random.choice([*MODELS])
            for turn in range(turns):
                said.append(f"turn {turn}")
                port = places[(number + turn) % len(places)][0]
                request = make_request(dialect, MODELS[dialect], said, streams=turn % 2 == 1)
                post(port, request, keys[owners[number % 2]])

        with ThreadPoolExecutor(4) as pool:
            [*pool.map(talk, range(10))]
        assert set(REQUESTS) >= set(MODELS)
        time.sleep(FLUSHED)
        whole = sum_lines(chain(*read_lines(tmp_path)))
        assert whole == upstream.counted
        assert asyncio.run(sum_rows(address, "acme")) == {(): whole}
        flushed = sum_lines(read_lines(tmp_path)[2])
        with ThreadPoolExecutor(4) as pool:
            [*pool.map(talk, range(20, 26))]
        places[2][1].kill()
    lines = read_lines(tmp_path)
    lost = sum_lines(lines[2]) - flushed
    every = [*chain(*lines)]
    assert sum_lines(every) == upstream.counted
    rows = asyncio.run(sum_rows(address, "acme"))[()]
    missing = upstream.counted - rows
    assert not rows - upstream.counted, "nothing is counted twice"
    assert all(missing[name] <= lost[name] for name in COUNTS), (missing, lost)
    alive = sum_lines([*lines[0], *lines[1]]) + flushed
    assert not alive - rows
    by_owner = asyncio.run(sum_rows(address, "acme", ("owner",)))
    assert set(by_owner) == {("alice",), ("bob",)}
