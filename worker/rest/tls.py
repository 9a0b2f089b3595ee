"""TLS contexts from Kafka's ``ssl.*`` properties (PEM stores, KIP-651)."""
from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def server_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context of an https listener. Reads files: blocks for a moment.

    Raises:
        ConfigInvalid: a store is missing, unreadable or not PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _common(context, properties)
    if not _load_identity(context, properties):
        raise ConfigInvalid("An https listener needs a certificate: set ssl.keystore.location to a PEM file with the private "
                            "key and the certificate chain, or ssl.keystore.key and ssl.keystore.certificate.chain")
    wanted = properties.get("ssl.client.auth", "none").lower()
    if wanted != "none":
        _load_trust(context, properties)
        context.verify_mode = ssl.CERT_REQUIRED if wanted == "required" else ssl.CERT_OPTIONAL
    return context


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context of requests to other workers. Reads files: blocks for a moment.

    Raises:
        ConfigInvalid: a store is unreadable or not PEM.
    """
    context = ssl.create_default_context()
    _common(context, properties)
    _load_identity(context, properties)
    _load_trust(context, properties)
    if properties.get("ssl.endpoint.identification.algorithm", "https").strip() == "":
        context.check_hostname = False
    return context


def _common(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    enabled = [item.strip() for item in properties.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",") if item.strip()]
    unknown = [item for item in enabled if item not in _VERSIONS]
    if unknown or not enabled:
        raise ConfigInvalid(f"ssl.enabled.protocols names {', '.join(unknown) or 'nothing'}; "
                            f"supported are {', '.join(_VERSIONS)}")
    context.minimum_version = min(_VERSIONS[item] for item in enabled)
    context.maximum_version = max(_VERSIONS[item] for item in enabled)


def _load_identity(context: ssl.SSLContext, properties: Mapping[str, str]) -> bool:
    password = properties.get("ssl.key.password") or properties.get("ssl.keystore.password")
    location = properties.get("ssl.keystore.location")
    chain, key = properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")
    if location:
        _pem_only(properties, "ssl.keystore.type")
        _load_chain(context, location, password, "ssl.keystore.location")
        return True
    if not chain or not key:
        return False
    # OpenSSL reads certificates from files only; this one is readable to nobody else and gone at once.
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{_lines(key)}\n{_lines(chain)}\n")
        _load_chain(context, name, password, "ssl.keystore.key")
    finally:
        Path(name).unlink()
    return True


def _load_chain(context: ssl.SSLContext, path: str, password: str | None, option: str) -> None:
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(path, password=password if password is not None else "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(f"{option}: can't load the private key and certificates as PEM: {error}") from error


def _load_trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    location, inline = properties.get("ssl.truststore.location"), properties.get("ssl.truststore.certificates")
    try:
        if location:
            _pem_only(properties, "ssl.truststore.type")
            context.load_verify_locations(cafile=location)
        elif inline:
            context.load_verify_locations(cadata=_lines(inline))
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(f"ssl.truststore: can't load the trusted certificates as PEM: {error}") from error


def _pem_only(properties: Mapping[str, str], option: str) -> None:
    kind = properties.get(option, "PEM").upper()
    if kind != "PEM":
        raise ConfigInvalid(f"{option}={kind} is a Java format; convert the store to PEM and set {option}=PEM")


def _lines(pem: str) -> str:
    """PEM text as a property file may hold it: on one line with spaces."""
    if "\n" in pem:
        return pem
    return pem.replace(" ", "\n").replace("BEGIN\n", "BEGIN ").replace("END\n", "END ").replace("\nKEY", " KEY").replace(
        "ENCRYPTED\nPRIVATE", "ENCRYPTED PRIVATE").replace("RSA\nPRIVATE", "RSA PRIVATE").replace("EC\nPRIVATE", "EC PRIVATE")
