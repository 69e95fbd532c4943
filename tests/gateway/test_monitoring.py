"""The dashboard and the alert rules, with a real Prometheus that scrapes a real gateway."""

import json
import shutil
import socket
import subprocess
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest
from counted import CountingUpstream, make_request
from program import served
from waiting import within

PROGRAM = shutil.which("prometheus")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(PROGRAM is None, reason="prometheus is not installed"),
]
FILES = Path(__file__).parents[2] / "examples/gateway/monitoring"
PROSE = "Most of the tests pass when the file is read in one piece, and nobody complained. "


class RefusingUpstream(CountingUpstream):
    """Refuses what asks for the model `away`."""

    def answer(self, asked):
        """Answer a request."""
        if b'"away"' in asked.body:
            return [b"HTTP/1.1 500 Any\r\ncontent-length: 2\r\n\r\n{}"]
        return super().answer(asked)


@contextmanager
def scraping(port, folder):
    """A Prometheus that looks at a gateway every half second; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()[1]
    rules = json.dumps(str(FILES / "rules.yml"))
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms, evaluation_interval: 1s}\n"
        f"rule_files: [{rules}]\n"
        "scrape_configs:\n  - job_name: foldline\n    static_configs:\n"
        f'      - targets: ["127.0.0.1:{port}"]\n'
    )
    running = subprocess.Popen(
        [
            PROGRAM, f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{own}",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield own
    finally:
        running.terminate()
        running.wait(30)


def query(address, expression):
    """What an expression is now; None while nobody answers."""
    with suppress(ConnectionError):
        return ask(address, f"/api/v1/query?{urlencode({'query': expression})}")["result"]
    return None


def ask(port, path):
    """What Prometheus says."""
    client = HTTPConnection("127.0.0.1", port, timeout=20)
    client.request("GET", path)
    said = json.loads(client.getresponse().read())["data"]
    client.close()
    return said


def list_queries():
    """Every query of the dashboard, with Grafana's variables filled in."""
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    for panel in panels:
        for target in panel["targets"]:
            written = target["expr"].replace("$__rate_interval", "30s")
            yield panel["title"], written.replace("$tenant", ".*").replace("$model", ".*")


def talk(port):
    """Calls of some models: planned, folded, refused, and one that is not planned."""

    def post(request):
        client = HTTPConnection("127.0.0.1", port, timeout=60)
        head = {"content-type": "application/json", "x-stainless-retry-count": "0"}
        client.request("POST", request.path, request.body, head)
        client.getresponse().read()
        client.close()

    said = []
    for turn in range(30):
        said.append(f"Turn {turn}. {PROSE * 9}")
        post(make_request("openai-chat", "gpt-5.1", said))
    post(make_request("anthropic", "claude-opus-4-6", ["hello"]))
    post(make_request("openai-chat", "away", ["hello"]))
    post(make_request("openai-chat", "m", ["hello"])._replace(body=b"{}"))


def test_every_query_of_the_dashboard_has_data(tmp_path):
    with RefusingUpstream(1) as upstream:
        options = ["--upstream", upstream.url, "--port", "0", "--window", "4000"]
        with (
            served([*options, "--store", tmp_path / "s.db"], tmp_path) as gateway,
            scraping(gateway.port, tmp_path) as prometheus,
        ):
            talk(gateway.port)
            assert within(lambda: query(prometheus, "foldline_usage_calls_total"), 60)
            talk(gateway.port)  # a rate needs two looks
            for title, expression in list_queries():
                found = within(lambda expression=expression: query(prometheus, expression), 30)
                assert found, f"{title}: {expression}"
            (calls,) = query(prometheus, "sum(foldline_usage_calls_total)")
            assert float(calls["value"][1]) <= upstream.counted["calls"] + 4
            (group,) = ask(prometheus, "/api/v1/rules")["groups"]
            assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}


def test_rules_and_scrape_settings_are_sound(tmp_path):
    for name in ("rules.yml", "prometheus.yml"):
        shutil.copy(FILES / name, tmp_path)
    for given in (["rules", "rules.yml"], ["config", "--syntax-only", "prometheus.yml"]):
        done = subprocess.run([shutil.which("promtool"), "check", *given], cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_series_of_the_rules_is_one_of_ours():
    """Those that nobody makes any more would never fire."""
    import re  # noqa: PLC0415

    from foldline.apps.gateway import audit  # noqa: PLC0415
    from foldline.apps.gateway.audit import Figures  # noqa: PLC0415
    from foldline.session.usage_records import UsageSums  # noqa: PLC0415

    figures = Figures()
    figures.usage.add("acme", "m", UsageSums(errors={"rate": 1}))
    known = set(re.findall(r"^# TYPE (\w+) ", figures.render_metrics().decode(), re.MULTILINE))
    known |= set(re.findall(r"^ +(foldline_\w+)", audit.__doc__, re.MULTILINE))
    for file in ("rules.yml", "dashboard.json"):
        text = (FILES / file).read_text()
        named = set(re.findall(r"foldline_\w+", text)) - {"foldline_metrics"}
        bare = {re.sub(r"_bucket$", "", one) for one in named}
        assert bare - {"foldline_gateways"} <= known, file
