"""G-7: a worker with the documented roles prepares the folds of what a real gateway relays."""

import asyncio
import os
import signal
import subprocess
import threading

import pytest
from folding import events_of, goals
from program import PROGRAM
from serving import documented_roles
from test_tenants import post, settings_say, wait_for
from test_tenants import serving as gateway_process

from foldline.apps.gateway.api_keys import create_key
from foldline.core.log import Folded
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import Provider

SETTINGS = """
[gateway]
prepare_folds = "worker"

[gateway.tenants.acme]
summarizer = "teller"
model.max_input_tokens = 3000
model.max_output_tokens = 200

[gateway.tenants.quiet]
model.max_input_tokens = 3000
model.max_output_tokens = 200
"""


def answer(given):
    """The model answers at length; the summarizer quotes what it was given."""
    return {"content": goals(given) if given["model"] == "teller" else "answer text " * 60}


def folds(address, name):
    """The folds in a session's log."""

    async def read():
        store = store_at(address)
        found = [event for event in await events_of(store, name) if isinstance(event, Folded)]
        await store.close()
        return found

    return asyncio.run(read())


@pytest.mark.real
def test_g7_a_worker_prepares_the_folds_of_relayed_conversations(tmp_path):
    """The gateway asks no summarizer itself; another tenant, which has none, is left alone."""
    settings_say(tmp_path, SETTINGS)
    keys = {name: create_key(tmp_path / "keys", name, tenant=name) for name in ("acme", "quiet")}
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "FOLDLINE_UPSTREAM_KEY": "theirs"}  # fmt: skip
    with documented_roles() as made, Provider(answer) as provider:
        migrated = subprocess.run(
            [PROGRAM, "migrate", "--store", made.address("owner")], capture_output=True, check=False
        )
        assert migrated.returncode == 0, migrated.stderr
        worker = subprocess.Popen(
            [PROGRAM, "worker", "--store", made.address("worker"), "--upstream", provider.url],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        told: list[str] = []
        listener = threading.Thread(target=lambda: told.extend(worker.stdout), daemon=True)
        listener.start()
        try:
            options = ("--keys", "keys", "--store", made.address("gateway"))
            with gateway_process(tmp_path, provider.url, *options) as (_, port, heard):
                sessions = {}
                for tenant, key in keys.items():
                    said = []
                    for turn in range(10):
                        said.append({"role": "user", "content": f"module_{turn} pasted text " * 20})
                        body = {"model": "m", "messages": said}
                        status, got, headers = post(port, "/v1/chat/completions", body, key)
                        assert status == 200, got
                        sessions[tenant] = headers["X-Foldline-Session"]
                        said.append(got["choices"][0]["message"])
                        print(
                            tenant,
                            turn,
                            headers["X-Foldline-Tokens"],
                            headers["X-Foldline-Edits"],
                            told,
                            heard,
                        )
                        if tenant == "acme" and turn == 6:  # from here on a fold is near
                            wait_for(lambda: any("prepared, told by teller" in line for line in told), 60)  # fmt: skip
                assert worker.poll() is None, told
            own = folds(made.address("gateway"), Name("acme", sessions["acme"]))
            other = folds(made.address("gateway"), Name("quiet", sessions["quiet"]))
            assert any(fold.by == "teller" for fold in own), (told, heard)
            assert other
            assert {fold.by for fold in other} == {""}
            assert not any("quiet/" in line for line in told)
            asked = [one for one in provider.asked if one["model"] == "teller"]
            assert asked
        finally:
            worker.send_signal(signal.SIGTERM)
            code = worker.wait(20)
            listener.join()
            worker.stdout.close()
        assert code == 0, told
