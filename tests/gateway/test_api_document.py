"""The OpenAPI document: it is the table of routes, and what is answered is as it says.

`FOLDLINE_FUZZ=5000` draws so many requests a route.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import schemathesis
from api_server import serving
from gateway_thread import Served as Gateway
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from foldline.apps.gateway.api.api_call import STATUSES
from foldline.apps.gateway.api.routes import ROUTES
from foldline.apps.gateway.api.schemas import AnsweredSchema
from foldline.apps.gateway.api.sessions_api import build_openapi_document
from foldline.testing import Provider

EXAMPLES = int(os.environ.get("FOLDLINE_FUZZ", "6"))
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
VERBS = [
    "context",
    "tokens",
    "fold",
    "undo",
    "redo",
    "pin",
    "unpin",
    "exclude",
    "recall",
    "search",
    "history",
    "instructions",
    "model",
    "cost",
    "export",
    "fork",
    "messages",
    "events",
    "request",
]


def operations():
    schema = schemathesis.openapi.from_dict(json.loads(build_openapi_document()))
    return [one.ok() for one in schema.get_all_operations()]


def test_every_route_and_every_verb_is_in_the_document():
    paths = json.loads(build_openapi_document())["paths"]
    told = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert told == {(route.method, f"/sessions{route.path}") for route in ROUTES}
    assert {*VERBS} <= {part for path in paths for part in path.split("/")}
    assert all(route.summary for route in ROUTES)
    ids = [one["operationId"] for methods in paths.values() for one in methods.values()]
    assert len({*ids}) == len(ids)


def test_the_page_tells_of_every_route():
    """docs/reference/http.md and the table of routes are one."""
    told = re.findall(r"^\| `(\w+) (/sessions[^` ]*)` \| (.+) \|$", DOCS.read_text(), re.MULTILINE)
    known = [(route.method, f"/sessions{route.path}", route.summary) for route in ROUTES]
    assert sorted(told) == sorted(known)


@pytest.fixture(scope="module")
def api():
    with serving(rounds=3) as served:
        for name in ("a", "t"):
            served.made(name, system="Be brief.", window=16_000)
            served.say(name, "Hello")
        yield served


def test_the_document_is_served(api):
    assert api.ok("GET", "/sessions/openapi.json") == json.loads(build_openapi_document())


@pytest.mark.slow
@pytest.mark.parametrize("operation", operations(), ids=lambda one: one.label)
def test_whatever_is_sent_is_answered_as_the_document_says(api, operation):
    """No 500; every answer is in the form that its status has, valid requests and broken ones."""
    looked = settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[*HealthCheck],
    )

    def sent(case):
        if "name" in (case.path_parameters or {}) and case.method != "DELETE":
            case.path_parameters["name"] = "t"
        if case.query and "follow" in case.query:
            case.query["follow"] = 0
        case.call_and_validate(base_url=api.url, checks=[*CHECKS], timeout=30)

    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
        looked(given(operation.as_strategy(generation_mode=mode))(lambda case: sent(case)))()  # noqa: PLW0108
    if api.call("GET", "/sessions/t")[0] == 200:
        return
    api.made("t")


def test_the_lines_of_the_page_are_true():
    """By curl itself, as they stand; and without the header that says who asks, none of them."""
    blocks = re.findall(r"```console\n(.*?)```", DOCS.read_text(), re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    assert len(lines) > 6
    with Provider() as provider, Gateway(provider.url, store=":memory:") as gateway:
        known = f"Authorization: {gateway.headers['authorization']}"
        for line in lines:
            shown = line.replace("curl ", "curl -sS -o /dev/null -w '%{http_code}' ", 1)
            for header, wanted in (("X-Nobody: 1", "401"), (known, "2")):
                env = {**os.environ, "API": gateway.url, "AUTH": header, "no_proxy": "*"}
                said = subprocess.run(["/bin/bash", "-c", shown], env=env, capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
                assert said.stdout.startswith(wanted), (line, said.stdout, said.stderr)


def test_the_page_tells_every_status_and_every_way_a_turn_ends():
    page = DOCS.read_text()
    told = {
        int(one)
        for row in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)
        for one in row.split(",")
    }
    assert told == {*STATUSES} - {500}
    ends = get_args(get_type_hints(AnsweredSchema)["ended"])
    assert {*re.findall(r"^\| `(\w+)`(?: \(202\))? \|", page, re.MULTILINE)} == {*ends}
