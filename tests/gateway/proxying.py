"""What stands between a gateway and the world in a company: a proxy, and a CA of its own."""

import http.client
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from select import select
from socket import create_connection
from typing import NamedTuple
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class ForwardProxy:
    """An HTTP proxy on loopback: CONNECT for https, the absolute form for http.

    Every name is 127.0.0.1 to it, so a name that nobody else resolves shows who was asked.
    """

    def __init__(self, *, login: str | None = None, status: int = 200) -> None:
        """`login` is the value of Proxy-Authorization that it asks for."""
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        """Method, target and headers of each request."""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                """Say nothing."""

            def may_pass(self):
                headers = {name.lower(): value for name, value in self.headers.items()}
                owner.asked.append((self.command, self.path, headers))
                if login is not None and headers.get("proxy-authorization") != login:
                    self.refuse(407)
                elif status != 200:
                    self.refuse(status)
                else:
                    return True
                return False

            def refuse(self, code):
                self.send_response(code)
                self.send_header("content-length", "0")
                self.end_headers()
                self.close_connection = True

            def do_CONNECT(self):
                if not self.may_pass():
                    return
                port = int(self.path.rpartition(":")[2])
                with create_connection(("127.0.0.1", port)) as there:
                    self.send_response(200)
                    self.end_headers()
                    pass_both_ways(self.connection, there)
                self.close_connection = True

            def do_POST(self):
                if not self.may_pass():
                    return
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                to = urlsplit(self.path)
                there = http.client.HTTPConnection("127.0.0.1", to.port or 80, timeout=20)
                kept = {n: v for n, v in self.headers.items() if n.lower() != "proxy-authorization"}
                there.request(self.command, to.path, body, kept)
                answer = there.getresponse()
                said = answer.read()
                there.close()
                self.send_response(answer.status)
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_GET = do_POST  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def pass_both_ways(one, other):
    """Copy bytes between two connections until either ends."""
    while True:
        for ready in select([one, other], [], [])[0]:
            try:
                piece = ready.recv(65_536)
            except OSError:
                return
            if not piece:
                return
            (other if ready is one else one).sendall(piece)


class Company(NamedTuple):
    """A CA of its own: its file, and what a server of its shows."""

    ca: Path
    tls: ssl.SSLContext


def make_company(folder: Path) -> Company:
    """A CA that nobody else knows, and a server's certificate from it for some names."""
    now = datetime.now(UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in ("Test CA", "upstream")]  # fmt: skip

    def build(which, *extensions):
        made = x509.CertificateBuilder(names[0], names[which], keys[which].public_key(), which + 1)
        made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))  # fmt: skip
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key())
        own = x509.SubjectKeyIdentifier.from_public_key(keys[which].public_key())
        for extension, critical in (*extensions, (identifier, False), (own, False)):
            made = made.add_extension(extension, critical)
        return made.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    usage = dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False)  # fmt: skip
    signs = x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True)
    hosts = [x509.DNSName("localhost"), x509.DNSName("api.example.test"), x509.IPAddress(ip_address("127.0.0.1"))]  # fmt: skip
    ca, chain, secret = folder / "ca.pem", folder / "server.pem", folder / "server.key"
    ca.write_bytes(build(0, (x509.BasicConstraints(ca=True, path_length=None), True), (signs, True)))  # fmt: skip
    chain.write_bytes(build(1, (x509.SubjectAlternativeName(hosts), False)))
    secret.write_bytes(keys[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain, secret)
    return Company(ca, tls)
