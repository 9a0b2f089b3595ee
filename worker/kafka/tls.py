"""TLS contexts from Kafka's ``ssl.*`` properties, for Kafka clients and for REST (KIP-651 for PEM in the properties).

Stores are PEM or PKCS12 files, whatever ``ssl.*.type`` says, or PEM text in the properties. Java's own format is refused with
the command that converts it.
"""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from connectors import tls
from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("worker.rest")
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_WORDS_OF_BORDERS: Final = ("KEY", "PRIVATE", "ENCRYPTED", "RSA", "EC", "CERTIFICATE")

#: The properties that this module reads.
PROPERTIES: Final = frozenset(
    {
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.protocol",
    }
)
#: Those of them that name files.
FILES: Final = ("ssl.truststore.location", "ssl.keystore.location")


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context of a client: of Kafka, or of other workers' REST. Without a trust store the system's authorities count.

    Reads files: blocks for a moment.

    Raises:
        ConfigInvalid: a store is missing or can't be used; the message names its property and how to fix it.
    """
    context = tls.client_context()
    if properties.get("ssl.endpoint.identification.algorithm", "https").strip() == "":
        context.check_hostname = False
    _limit_protocols(context, properties)
    _load_trust(context, properties)
    _load_identity(context, properties)
    return context


def server_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context of an https listener. Reads files: blocks for a moment.

    Raises:
        ConfigInvalid: a store is missing or can't be used; the message names its property and how to fix it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit_protocols(context, properties)
    identity = _load_identity(context, properties)
    if identity is None:
        raise ConfigInvalid(
            "An https listener needs a certificate: set ssl.keystore.location to a PEM or PKCS12 file with the "
            "private key and the certificate chain, or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    invalidity = tls.find_invalidity(identity, datetime.now(UTC))
    if invalidity is not None:
        _log.warning(
            "https listeners: %s, so clients and other workers refuse it. Renew it where ssl.keystore.location or "
            "ssl.keystore.certificate.chain has it, or correct this machine's clock; a file is read again without a restart",
            invalidity,
        )
    client_auth = properties.get("ssl.client.auth", "none").lower()
    if client_auth != "none":
        _load_trust(context, properties)
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
    return context


def _limit_protocols(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    enabled = [
        item.strip() for item in properties.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",") if item.strip()
    ]
    unknown = [item for item in enabled if item not in _VERSIONS]
    if unknown or not enabled:
        raise ConfigInvalid(
            f"ssl.enabled.protocols names {', '.join(unknown) or 'nothing'}; supported are {', '.join(_VERSIONS)}"
        )
    context.minimum_version = min(_VERSIONS[item] for item in enabled)
    context.maximum_version = max(_VERSIONS[item] for item in enabled)
    ciphers = [
        name.strip() for name in properties.get("ssl.cipher.suites", "").replace(":", ",").split(",") if name.strip()
    ]
    if ciphers:
        try:
            tls.set_ciphers(context, ciphers)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"ssl.cipher.suites: {error}") from error


def _load_trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    inline, location = properties.get("ssl.truststore.certificates"), properties.get("ssl.truststore.location")
    if not inline and not location:
        return
    option = "ssl.truststore.certificates" if inline else "ssl.truststore.location"
    try:
        trusted_pem = (
            restore_lines(inline)
            if inline
            else tls.read_certificates(location or "", properties.get("ssl.truststore.password"))
        )
        context.load_verify_locations(cadata=trusted_pem)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{option}: {error}") from error
    except (OSError, ValueError) as error:
        raise ConfigInvalid(
            f"{option}: the trusted certificates can't be used: {error}. They must be PEM, or a PKCS12 file"
        ) from error


def _load_identity(context: ssl.SSLContext, properties: Mapping[str, str]) -> tls.Identity | None:
    chain, key = properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")
    location = properties.get("ssl.keystore.location")
    key_password, store = properties.get("ssl.key.password"), properties.get("ssl.keystore.password")
    if chain and key:
        option, identity = (
            "ssl.keystore.key",
            tls.Identity(f"{restore_lines(key)}\n{restore_lines(chain)}\n", encrypted=True),
        )
    elif location:
        option = "ssl.keystore.location"
        try:
            identity = tls.read_identity(location, store)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{option}: {error}") from error
    else:
        return None
    try:
        tls.load_identity(context, identity, key_password or store)
    except (OSError, ValueError) as error:
        raise ConfigInvalid(
            f"{option}: the private key and its certificates can't be used: {error}. Check that the key "
            "belongs to the first certificate, and ssl.key.password where the key is encrypted"
        ) from error
    return identity


def restore_lines(pem: str) -> str:
    """PEM text as a property file may hold it, on one line with spaces, with its lines."""
    if "\n" in pem.strip():
        return pem
    restored = ""
    for word in pem.split(" "):
        # Words of a border ("BEGIN PRIVATE KEY") stay together, everything else is a line of its own.
        joint = " " if restored and word.rstrip("-") in _WORDS_OF_BORDERS else "\n"
        restored += joint + word
    return restored.strip() + "\n"
