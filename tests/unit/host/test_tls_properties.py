"""TLS contexts of Kafka's ssl.* properties, from stores that the local stack's authority made."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from compose.local.security.certificates import Authority
from connectors.errors import ConfigInvalid
from offsets.refusal import find_refusal
from worker.kafka.tls import client_context, server_context

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

AUTHORITY = Authority.make("test")
OWN_CERTIFICATE = AUTHORITY.issue("me")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> Mapping[str, object] | None:
    """Let two contexts meet; the client's certificate as the server saw it."""
    upward, downward = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = server.wrap_bio(upward, downward, server_side=True)
    client_side = client.wrap_bio(downward, upward, server_hostname="localhost")
    for _ in range(5):
        for side in (client_side, server_side):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return server_side.getpeercert()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    AUTHORITY.write_pem(folder / "trust.pem")
    AUTHORITY.write_pkcs12(folder / "trust.p12", "trust-secret")
    OWN_CERTIFICATE.write_pem(folder / "own.pem")
    OWN_CERTIFICATE.write_pem(folder / "locked.pem", "key-secret")
    OWN_CERTIFICATE.write_pkcs12(folder / "own.p12", "store-secret")
    (folder / "store.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    return folder


@pytest.mark.parametrize(
    "trust",
    [
        {"ssl.truststore.location": "trust.pem"},
        {"ssl.truststore.certificates": AUTHORITY.pem},
        {"ssl.truststore.certificates": AUTHORITY.pem.replace("\n", " ")},
        {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": "trust.p12",
            "ssl.truststore.password": "trust-secret",
        },
    ],
)
@pytest.mark.parametrize(
    "keystore",
    [
        {"ssl.keystore.location": "own.pem"},
        {"ssl.keystore.location": "locked.pem", "ssl.key.password": "key-secret"},
        {"ssl.keystore.location": "own.p12", "ssl.keystore.password": "store-secret"},
        {
            "ssl.keystore.key": OWN_CERTIFICATE.key_pem("key-secret").replace("\n", " "),
            "ssl.key.password": "key-secret",
            "ssl.keystore.certificate.chain": OWN_CERTIFICATE.chain_pem.replace("\n", " "),
        },
    ],
)
def test_both_sides_show_and_believe_certificates(
    stores: Path, trust: dict[str, str], keystore: dict[str, str]
) -> None:
    properties = {
        name: str(stores / value) if name.endswith("location") else value for name, value in (trust | keystore).items()
    }
    server, client = server_context({**properties, "ssl.client.auth": "required"}), client_context(properties)
    assert client.check_hostname
    seen = handshake(server, client)
    assert seen is not None
    assert seen["subject"] == ((("commonName", "me"),),)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ssl.keystore.location": "store.jks"}, r"ssl\.keystore\.location: .*JKS.*keytool -importkeystore"),
        ({"ssl.truststore.location": "store.jks"}, r"ssl\.truststore\.location: .*JKS.*keytool -importkeystore"),
        ({"ssl.keystore.location": "own.p12", "ssl.keystore.password": "wrong"}, "can't be opened"),
        ({"ssl.keystore.location": "locked.pem"}, r"ssl\.key\.password where the key is encrypted"),
        ({"ssl.keystore.location": "trust.p12", "ssl.keystore.password": "trust-secret"}, "no key with a certificate"),
        ({"ssl.truststore.location": "nothing.pem"}, "can't be read: No such file"),
        ({"ssl.truststore.certificates": "rubbish"}, "can't be used"),
        ({"ssl.enabled.protocols": "SSLv3"}, "supported are"),
        ({"ssl.cipher.suites": "TLS_NO_SUCH_WITH_THING"}, r"ssl\.cipher\.suites: none of the cipher suites"),
    ],
)
def test_what_cannot_be_used_is_said(stores: Path, properties: dict[str, str], message: str) -> None:
    located = {name: str(stores / value) if name.endswith("location") else value for name, value in properties.items()}
    with pytest.raises(ConfigInvalid, match=message):
        client_context(located)


def test_names_in_certificates_may_be_let_pass() -> None:
    assert not client_context({"ssl.endpoint.identification.algorithm": ""}).check_hostname


def test_java_cipher_suites_are_known() -> None:
    context = client_context({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"})
    assert "ECDHE-RSA-AES128-GCM-SHA256" in {cipher["name"] for cipher in context.get_ciphers()}


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (31, "the certificate of CN=late expired at 20"),
        (-1, "the certificate of CN=late is not valid before 20"),
        (29, None),
    ],
)
def test_a_listener_with_a_certificate_of_another_time_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: int, words: str | None
) -> None:
    AUTHORITY.issue("late", since=timedelta(days=days)).write_pem(tmp_path / "late.pem")
    server_context({"ssl.keystore.location": str(tmp_path / "late.pem")})
    assert [words is not None and words in record.getMessage() for record in caplog.records] == [True] * (
        words is not None
    )


@pytest.mark.parametrize(
    ("days", "advice"),
    [
        (31, "not believed: certificate has expired. Renew it"),
        (-1, "not believed: certificate is not yet valid. Renew it, or that of its authority, or correct the clock"),
    ],
)
async def test_a_broker_with_a_certificate_of_another_time_is_explained(tmp_path: Path, days: int, advice: str) -> None:
    AUTHORITY.issue("late", since=timedelta(days=days)).write_pem(tmp_path / "late.pem")
    context = server_context({"ssl.keystore.location": str(tmp_path / "late.pem")})
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        trust = client_context({"ssl.truststore.certificates": AUTHORITY.pem})
        refusal = await find_refusal(
            {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_context": trust, "client_id": "c"}
        )
    assert advice in str(refusal)
