"""Every client trusts the same authorities on every version of Python."""

from __future__ import annotations

import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connectors.cql.cluster.tls import ssl_context
from connectors.mysql.source.connection import ssl_context as mysql_context
from tests.support.settings import cql_tls, mysql_tls
from worker.converters.avro import AvroConverter
from worker.converters.registry.options import parse_options, registry_settings
from worker.kafka.tls import client_context
from worker.rest.client import AUTHORITIES, send_get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLIENTS: Final[dict[str, Callable[[str], ssl.SSLContext | None]]] = {
    "kafka": lambda path: client_context({"ssl.truststore.location": path}),
    "cql": lambda path: ssl_context(cql_tls(truststore=path, check_hostname=True)),
    "mysql": lambda path: mysql_context(mysql_tls(mode="verify_identity", truststore=path)),
    "registry": lambda path: (
        registry_settings(
            parse_options(
                AvroConverter.config_def,
                {"schema.registry.url": "https://localhost", "schema.registry.ssl.truststore.location": path},
            )
        ).tls
    ),
}


class Files(NamedTuple):
    """Files of one authority, an authority below it, and a server that this one has signed."""

    root: Path
    middle: Path
    server: Path


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Certificates as people make them with a few lines: without key usage and key identifiers."""
    folder = tmp_path_factory.mktemp("authorities")
    start = datetime.now(UTC) - timedelta(days=1)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("root", "middle", "localhost")}
    certificates = {}
    for name, issuer in (("root", "root"), ("middle", "root"), ("localhost", "middle")):
        builder = x509.CertificateBuilder(
            issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
            subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            public_key=keys[name].public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=start,
            not_valid_after=start + timedelta(days=3),
        )
        if name == "localhost":
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        else:
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        certificates[name] = (
            builder.sign(keys[issuer], hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
        )
        (folder / name).write_text(certificates[name])
    key = (
        keys["localhost"]
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        .decode()
    )
    (folder / "server").write_text(key + certificates["localhost"] + certificates["middle"])
    return Files(folder / "root", folder / "middle", folder / "server")


@pytest.fixture
def port(files: Files) -> Iterator[int]:
    """Of an https server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server)
    with HTTPServer(("127.0.0.1", 0), _Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(params=[False, True], ids=["lenient", "strict"])
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own defaults: those before 3.13, and those since then."""
    original = ssl.create_default_context
    both = ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN

    def create_default_context(*args: object, **named: object) -> ssl.SSLContext:
        context = original(*args, **named)  # type: ignore[arg-type]
        context.verify_flags = context.verify_flags | both if request.param else context.verify_flags & ~both
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_default_context)


def shake_hands(client: ssl.SSLContext, server_file: Path) -> None:
    """A handshake in memory; raises the client's error."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_file)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname="localhost"), context.wrap_bio(up, down, server_side=True)]
    for _ in range(10):
        for end in ends[:]:
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not ends:
            return
    raise AssertionError("the handshake does not end")


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("authority", ["root", "middle"])
@pytest.mark.parametrize("client", CLIENTS)
def test_an_authority_without_key_usage_is_trusted(client: str, authority: str, files: Files) -> None:
    context = CLIENTS[client](str(getattr(files, authority)))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    shake_hands(context, files.server)


@pytest.mark.parametrize("client", CLIENTS)
def test_another_authority_is_not_trusted(client: str, files: Files, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")])
    start = datetime.now(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=3))
    other = builder.sign(key, hashes.SHA256())
    (tmp_path / "other").write_bytes(other.public_bytes(serialization.Encoding.PEM))
    context = CLIENTS[client](str(tmp_path / "other"))
    assert context is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, files.server)


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("authority", ["root", "middle"])
def test_commands_trust_it_too(authority: str, files: Files, port: int) -> None:
    assert send_get(f"https://localhost:{port}/", 10.0, {AUTHORITIES: str(getattr(files, authority))}) == b"{}"
