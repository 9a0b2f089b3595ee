"""TLS to the cluster, from the files that users of the Java connector have."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import msgspec

from connectors import tls
from connectors.errors import ConfigInvalid
from connectors.options import Password  # noqa: TC001 - msgspec reads the annotation at run time

if TYPE_CHECKING:
    from collections.abc import Callable


class CqlTlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to encrypt, and whom to believe.

    Attributes:
        truststore: file with the certificates that are believed, PEM or PKCS12; None: the system's.
        truststore_password: of a PKCS12 file.
        keystore: file with our key and certificate, PEM or PKCS12, where the cluster wants one.
        keystore_password: of a PKCS12 file, or of an encrypted PEM key.
        certificate: PEM file with our certificate, in place of a key store.
        private_key: PEM file with its key.
        ciphers: names of cipher suites as Java or OpenSSL have them; none: Python's choice.
        check_hostname: whether the node's address must be in its certificate.
        verify: whether the node's certificate is verified at all.
    """

    truststore: str | None
    truststore_password: Password | None
    keystore: str | None
    keystore_password: Password | None
    certificate: str | None
    private_key: str | None
    ciphers: tuple[str, ...]
    check_hostname: bool
    verify: bool


def ssl_context(settings: CqlTlsSettings) -> ssl.SSLContext:
    """A client's context. Reads files: blocks.

    Raises:
        ConfigInvalid: a file can't be read or used; the message says which and how to fix it.
    """
    context = tls.client_context()
    context.check_hostname = settings.check_hostname and settings.verify
    if not settings.verify:
        context.verify_mode = ssl.CERT_NONE
    if settings.truststore:
        authorities = tls.read_certificates(settings.truststore, _password_text(settings.truststore_password))
        _try_file("trust store", settings.truststore, lambda: context.load_verify_locations(cadata=authorities))
    secret = _password_text(settings.keystore_password)
    if settings.keystore:
        identity = tls.read_identity(settings.keystore, secret)
        _try_file("key store", settings.keystore, lambda: tls.load_identity(context, identity, secret))
    elif settings.certificate or settings.private_key:
        if not settings.certificate:
            raise ConfigInvalid(f"the private key {settings.private_key} has no certificate with it: set both or none")
        certificate, key = settings.certificate, settings.private_key
        # Without a password OpenSSL would ask for one on the terminal.
        _try_file(
            "certificate", certificate, lambda: context.load_cert_chain(certificate, key, password=lambda: secret or "")
        )
    if settings.ciphers:
        tls.set_ciphers(context, settings.ciphers)
    return context


def _password_text(password: Password | None) -> str | None:
    return None if password is None else password.value


def _try_file(subject: str, path: str, action: Callable[[], object]) -> None:
    try:
        action()
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigInvalid(f"the {subject} {path} can't be used: {error}; check the file and its password") from error
