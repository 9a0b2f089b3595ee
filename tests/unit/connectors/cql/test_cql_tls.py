"""TLS files and cipher names; the files are made by openssl."""

import os
import shutil
import ssl
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from connectors.cql.cluster.tls import ssl_context
from connectors.errors import ConfigInvalid
from connectors.options import Password
from connectors.tls import openssl_cipher
from tests.support.settings import cql_tls

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
needs_cryptography = pytest.mark.skipif(
    find_spec("cryptography") is None, reason="the package cryptography is not installed"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    openssl(
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    )
    openssl("ec", "-in", "key.pem", "-aes128", "-passout", "pass:secret", "-out", "locked.pem")
    openssl("pkcs12", "-export", "-inkey", "key.pem", "-in", "cert.pem", "-passout", "pass:secret", "-out", "store.p12")
    openssl("pkcs12", "-export", "-nokeys", "-in", "cert.pem", "-passout", "pass:secret", "-out", "trust.p12")
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    (folder / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (folder / "junk").write_bytes(b"junk")
    return folder


@needs_openssl
def test_pem_files(files: Path) -> None:
    context = ssl_context(
        cql_tls(
            truststore=str(files / "cert.pem"), certificate=str(files / "cert.pem"), private_key=str(files / "key.pem")
        )
    )
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname
    assert [entry["subject"] for entry in context.get_ca_certs()][-1] == ((("commonName", "localhost"),),)
    assert ssl_context(cql_tls(keystore=str(files / "both.pem"), check_hostname=True)).check_hostname
    ssl_context(
        cql_tls(
            certificate=str(files / "cert.pem"),
            private_key=str(files / "locked.pem"),
            keystore_password=Password("secret"),
        )
    )


@needs_openssl
@needs_cryptography
def test_pkcs12_files(files: Path) -> None:
    context = ssl_context(
        cql_tls(
            truststore=str(files / "store.p12"),
            truststore_password=Password("secret"),
            keystore=str(files / "store.p12"),
            keystore_password=Password("secret"),
        )
    )
    assert context.get_ca_certs()
    with pytest.raises(ConfigInvalid, match="password"):
        ssl_context(cql_tls(truststore=str(files / "store.p12"), truststore_password=Password("wrong")))
    with pytest.raises(ConfigInvalid, match="no key"):
        ssl_context(cql_tls(keystore=str(files / "trust.p12"), keystore_password=Password("secret")))
    with pytest.raises(ConfigInvalid, match="can't be opened"):
        ssl_context(cql_tls(truststore=str(files / "junk")))


@needs_openssl
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"truststore": "store.jks"}, "keytool -importkeystore"),
        ({"keystore": "store.jks"}, "keytool -importkeystore"),
        ({"truststore": "missing.pem"}, "missing.pem can't be read"),
        ({"certificate": "cert.pem", "private_key": "locked.pem"}, "password"),
        ({"private_key": "key.pem"}, "has no certificate with it"),
        ({"certificate": "key.pem"}, "key.pem can't be used"),
    ],
)
def test_errors_say_what_to_do(files: Path, settings: dict[str, Any], text: str) -> None:
    paths: dict[str, Any] = {name: os.fspath(files / value) for name, value in settings.items()}
    with pytest.raises(ConfigInvalid, match=text) as caught:
        ssl_context(cql_tls(**paths))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("SSL_RSA_WITH_3DES_EDE_CBC_SHA", "DES-CBC3-SHA"),
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_names(java: str, openssl: str) -> None:
    assert openssl_cipher(java) == openssl


def test_ciphers_are_set() -> None:
    context = ssl_context(cql_tls(ciphers=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)))
    assert {entry["name"] for entry in context.get_ciphers() if not entry["name"].startswith("TLS_")} == {
        "ECDHE-RSA-AES128-GCM-SHA256"
    }
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert ssl_context(cql_tls(ciphers=("TLS_AES_128_GCM_SHA256",))).minimum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(ConfigInvalid, match="TLS_NO_SUCH_WITH_THING"):
        ssl_context(cql_tls(ciphers=("TLS_NO_SUCH_WITH_THING",)))
