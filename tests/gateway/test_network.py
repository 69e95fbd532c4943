"""The way to upstreams: proxies of the environment, and certificates of a company's own CA."""

import base64
import json
import logging
import os
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest
from gateway_thread import Served
from program import PROGRAM, served
from proxying import ForwardProxy, make_company
from raw_upstream import Upstream, chunk, head
from yarl import URL

from foldline.apps.gateway.network import Network, Proxy, read_network
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.errors import BadInput
from foldline.testing import Provider
from foldline.testing.provider import written

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}).encode()
PASSWORD = "pa:ss/w0rd-of-the-proxy"  # noqa: S105
LOGIN = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def _no_network_of_this_machine(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def company(tmp_path):
    return make_company(tmp_path)


def ask(url, *, path="/v1/chat/completions", body=BODY, **headers):
    """Status, headers and body of an answer, asked for without a proxy."""
    asked = urllib.request.Request(url + path, body, {"content-type": "application/json", **headers})  # noqa: S310  # fmt: skip
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, dict(refused.headers), refused.read()


def reached(upstream, **environment):
    """A gateway's settings under an environment."""
    ca = environment.pop("ca", None)
    network = read_network(environment, ca=ca)
    return GatewaySettings(upstreams=parse_upstreams([upstream], {}), network=network)


def elsewhere(url):
    """The same address under a name that only the proxy knows."""
    return url.replace("127.0.0.1", "api.example.test")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy"])
def test_plain_http_goes_through_the_proxy(name):
    with ForwardProxy() as proxy, Upstream() as upstream:
        with Served(reached(elsewhere(upstream.url), **{name: proxy.url})) as gateway:
            assert ask(gateway.url)[0] == 200
        method, target, _ = proxy.asked[0]
        assert (method, target) == ("POST", elsewhere(upstream.url) + "/v1/chat/completions")
        assert upstream.asked[0].body == BODY


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_https_goes_through_a_tunnel(company, name):
    with ForwardProxy() as proxy, Upstream(tls=company.tls) as upstream:
        given = {name: proxy.url, "HTTP_PROXY": "http://127.0.0.1:1"}
        with Served(reached(elsewhere(upstream.url), ca=company.ca, **given)) as gateway:
            assert ask(gateway.url)[0] == 200
        method, target, headers = proxy.asked[0]
        assert (method, target) == ("CONNECT", elsewhere(upstream.url).removeprefix("https://"))
        assert "authorization" not in headers
        assert upstream.asked[0].body == BODY


def test_loopback_is_no_exception():
    """As everywhere: only NO_PROXY says what is asked straight."""
    with ForwardProxy() as proxy, Upstream() as upstream:
        with Served(reached(upstream.url, HTTP_PROXY=proxy.url)) as gateway:
            assert ask(gateway.url)[0] == 200
        assert len(proxy.asked) == 1
        for listed in ("127.0.0.1", "localhost,127.0.0.1", "*", "127.0.0.0/8"):
            with Served(reached(upstream.url, HTTP_PROXY=proxy.url, NO_PROXY=listed)) as gateway:
                assert ask(gateway.url)[0] == 200
        assert len(proxy.asked) == 1
        assert len(upstream.asked) == 5


@pytest.mark.parametrize(
    ("listed", "straight"),
    [
        ("", ""),
        ("*", "http://api.example.com http://10.1.2.3 http://[::1]:8080"),
        ("example.com", "http://api.example.com http://example.com http://EXAMPLE.com:99"),
        (".example.com", "http://api.example.com http://example.com"),
        ("*.example.com", "http://api.example.com"),
        (" a.test , example.com:8080", "http://example.com:8080 http://a.test"),
        ("10.0.0.0/8,::1", "http://10.1.2.3 http://[::1]:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_hosts_that_are_asked_straight(listed, straight):
    network = Network(proxies={"http": Proxy("http://proxy")}, no_proxy=listed)
    for one in straight.split():
        assert network.find_proxy(URL(one)) is None, one
    others = {"": "http://127.0.0.1", "*": "", "10.0.0.0/8,::1": "http://11.1.2.3 http://[::2]"}
    usual = "http://other.com http://badexample.com http://example.com.evil"
    for one in others.get(listed, usual).split():
        assert network.find_proxy(URL(one)) == Proxy("http://proxy"), one


@pytest.mark.parametrize(
    ("value", "address", "login"),
    [
        ("http://proxy:3128", "http://proxy:3128", None),
        ("proxy:3128/", "http://proxy:3128", None),
        ("https://proxy", "https://proxy", None),
        ("http://[::1]:3128", "http://[::1]:3128", None),
        ("http://me:pa%3Ass%2Fw0rd-of-the-proxy@proxy:3128", "http://proxy:3128", LOGIN),
        ("http://me@proxy", "http://proxy", "Basic bWU6"),
    ],
)
def test_a_proxy_as_it_is_written(value, address, login):
    proxy = read_network({"HTTPS_PROXY": value}).proxies["https"]
    assert proxy.address == address
    assert (proxy.login and proxy.login.reveal()) == login
    assert PASSWORD not in repr(proxy)
    assert "bWU6" not in repr(proxy)


def test_the_lower_case_name_goes_first_also_when_it_is_empty():
    both = {"http_proxy": "http://low", "HTTP_PROXY": "http://up"}
    assert read_network(both).proxies["http"].address == "http://low"
    assert not read_network({**both, "http_proxy": ""}).proxies


@pytest.mark.parametrize("value", ["socks5://u:hush@proxy:1080", "http://:hush@", "http://u:hush@[x", "http://u:hush@p:port"])  # fmt: skip
def test_what_is_no_proxy_is_refused_without_being_shown(value):
    with pytest.raises(BadInput, match=r"^HTTPS_PROXY is no address of an HTTP proxy; write") as told:  # fmt: skip
        read_network({"HTTPS_PROXY": value})
    assert "hush" not in str(told.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("is_known", [True, False], ids=["let in", "refused"])
def test_a_proxys_password_reaches_the_proxy_alone(scheme, is_known, company, tmp_path, caplog):
    """Not the upstream, not the client, not a log."""
    caplog.set_level(logging.DEBUG)
    audit = tmp_path / "audit.jsonl"
    given = f"http://me:{PASSWORD.replace(':', '%3A').replace('/', '%2F')}@127.0.0.1"
    with (
        ForwardProxy(login=LOGIN if is_known else "Basic other") as proxy,
        Upstream(tls=company.tls if scheme == "https" else None) as upstream,
    ):
        settings = reached(
            elsewhere(upstream.url), ca=company.ca,
            HTTP_PROXY=f"{given}:{proxy.port}", HTTPS_PROXY=f"{given}:{proxy.port}",
        )  # fmt: skip
        with Served(settings, store=":memory:", audit=audit) as gateway:
            answers = [ask(gateway.url, authorization="Bearer sk-x") for _ in range(3)]
        assert {one[2]["proxy-authorization"] for one in proxy.asked} == {LOGIN}
        assert [one[0] for one in answers] == [200 if is_known else 407 if scheme == "http" else 502] * 3  # fmt: skip
        assert len(upstream.asked) == 3 * is_known
    shown = [caplog.text, audit.read_text(), repr(settings), repr(answers), repr(upstream.asked)]
    for secret in (PASSWORD, LOGIN, LOGIN.split()[1], "proxy-authorization"):
        assert not [one for one in shown if secret.lower() in one.lower()]


def test_a_login_of_netrc_is_sent_nowhere(tmp_path, monkeypatch):
    """It is the operator's, and the client's request is not."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hush\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with ForwardProxy() as proxy, Upstream() as upstream:
        with Served(reached(upstream.url, HTTP_PROXY=proxy.url)) as gateway:
            assert ask(gateway.url)[0] == 200
        assert upstream.asked[0].header("authorization") is None
        assert "proxy-authorization" not in proxy.asked[0][2]


def test_what_a_client_is_told_of_the_way():
    with Upstream() as upstream, ForwardProxy(status=403) as closed:
        secure = upstream.url.replace("http:", "https:")
        for url, given, code in (
            (upstream.url, {"HTTP_PROXY": "http://127.0.0.1:1"}, "proxy_away"),
            (secure, {"HTTPS_PROXY": closed.url}, "proxy_refused"),
        ):
            with Served(reached(url, **given)) as gateway:
                status, headers, _ = ask(gateway.url)
                assert (status, headers["x-foldline-error"]) == (502, code)
        assert not upstream.asked


def test_a_certificate_is_checked(company, tmp_path):
    """By the system's CAs, those of SSL_CERT_FILE instead, or the operator's beside them."""
    other = make_company(make_folder(tmp_path / "other"))
    both = tmp_path / "both.pem"
    both.write_bytes(other.ca.read_bytes() + company.ca.read_bytes())
    trusting = [{"ca": company.ca}, {"ca": both}, {"SSL_CERT_FILE": str(company.ca)}, {"SSL_CERT_FILE": str(other.ca), "ca": company.ca}]  # fmt: skip
    with Upstream(tls=company.tls) as upstream:
        for given in trusting:
            with Served(reached(upstream.url, **given)) as gateway:
                assert ask(gateway.url)[0] == 200, given
        for given in ({}, {"ca": other.ca}, {"SSL_CERT_FILE": str(other.ca)}):
            with Served(reached(upstream.url, **given)) as gateway:
                status, headers, body = ask(gateway.url)
                assert (status, headers["x-foldline-error"]) == (502, "upstream_untrusted"), given
                assert b"--ca FILE" in body
        assert len(upstream.asked) == len(trusting)


def make_folder(path):
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("holds", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "holds no certificate; write a CA's certificates there, as PEM"),
        (b"no PEM", "holds no certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no certificate"),
    ],
)
def test_a_wrong_file_is_refused_at_the_start(tmp_path, holds, told):
    file = tmp_path / "ca.pem"
    if holds is not None:
        file.write_bytes(holds)
    with pytest.raises(BadInput, match="--ca .*ca.pem " + told):
        read_network({}, ca=file)
    with pytest.raises(BadInput, match="SSL_CERT_FILE=.*ca.pem " + told):
        read_network({"SSL_CERT_FILE": str(file)})


def test_the_command_says_what_is_wrong_and_ends(tmp_path):
    given = ["serve", "--plain", "--port", "0", "--upstream", "https://127.0.0.1"]
    for options, env in ((["--ca", "missing.pem"], {}), ([], {"SSL_CERT_FILE": "missing.pem"})):
        ended = subprocess.run([PROGRAM, *given, *options], cwd=tmp_path, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        assert ended.returncode != 0
        assert "missing.pem cannot be read: No such file" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_the_command_reads_the_environment(company, tmp_path):
    """Relayed requests and the session API's own go the same way; its start shows no password."""
    with Provider() as provider, ForwardProxy() as proxy, Upstream(tls=company.tls) as upstream:
        way = f"http://me:hush@127.0.0.1:{proxy.port}"
        given = ["--port", "0", "--store", "talks.db", "--ca", str(company.ca)]
        to = ["--upstream", f"anthropic={elsewhere(upstream.url)}", "--upstream", f"openai={elsewhere(provider.url)}"]  # fmt: skip
        with served([*given, *to], tmp_path, HTTPS_PROXY=way, HTTP_PROXY=way) as begun:
            assert f"proxy     http://127.0.0.1:{proxy.port}  for api.example.test" in begun.shown
            assert "hush" not in begun.shown
            url = f"http://127.0.0.1:{begun.port}"
            own = {"authorization": f"Bearer {begun.token}"}
            assert ask(url, path="/v1/messages")[0] == 200
            assert ask(url)[0] == 200
            assert ask(url, path="/sessions", body=b'{"name":"t","model":"m"}', **own)[0] == 201
            assert ask(url, path="/sessions/t/messages", body=b'{"text":"Hello"}', **own)[0] == 200
        assert sorted(one[0] for one in proxy.asked) == ["CONNECT", "POST", "POST"]
        assert len(provider.bodies) == 2


def test_the_session_apis_models_trust_the_same(company):
    """A model that is asked for a session is asked with the certificates of the network."""
    events = written("openai", {"model": "m"}, {"content": "Hi."}, 9)[1]
    script = [head(), *(chunk(one.encode()) for one in events), chunk(b"")]
    with Upstream(lambda _: script, tls=company.tls) as upstream:
        with Served(reached(upstream.url, ca=company.ca), store=":memory:") as gateway:
            made = ask(gateway.url, path="/sessions", body=b'{"name":"t","model":"m"}', **gateway.headers)  # fmt: skip
            assert made[0] == 201
            said = ask(gateway.url, path="/sessions/t/messages", body=b'{"text":"Hello"}', **gateway.headers)  # fmt: skip
            assert said[0] == 200
        assert upstream.asked[0].target == b"/v1/chat/completions"


def test_without_an_environment_nothing_is_between():
    assert not read_network({}).proxies
    assert Network().find_proxy(URL("http://a")) is None
    assert read_network({}).tls.verify_mode is ssl.CERT_REQUIRED
