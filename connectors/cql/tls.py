"""TLS to the cluster, from the files that users of the Java connector have."""
from __future__ import annotations

import os
import ssl
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.errors import ConfigInvalid
from connectors.options import Password  # noqa: TC001 - msgspec reads the annotation at run time

if TYPE_CHECKING:
    from collections.abc import Callable


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
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
    """

    truststore: str | None = None
    truststore_password: Password | None = None
    keystore: str | None = None
    keystore_password: Password | None = None
    certificate: str | None = None
    private_key: str | None = None
    ciphers: tuple[str, ...] = ()
    check_hostname: bool = False


_JAVA_STORES: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_NEW_STORE: Final = "store.p12"


def ssl_context(settings: TlsSettings) -> ssl.SSLContext:
    """A client's context. Reads files: blocks.

    Raises:
        ConfigInvalid: a file can't be read or used; the message says which and how to mend it.
    """
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = settings.check_hostname
    if settings.truststore:
        authorities = _certificates(settings.truststore, settings.truststore_password)
        _attempt("trust store", settings.truststore, lambda: context.load_verify_locations(cadata=authorities))
    if settings.keystore:
        chain = _key_and_chain(settings.keystore, settings.keystore_password)
        password = None if _is_pkcs12(settings.keystore) else settings.keystore_password
        _attempt("key store", settings.keystore, lambda: _load_chain(context, chain, password))
    elif settings.certificate or settings.private_key:
        if not settings.certificate:
            raise ConfigInvalid(f"the private key {settings.private_key} has no certificate beside it: set both or none")
        certificate, key = settings.certificate, settings.private_key
        secret = settings.keystore_password.value if settings.keystore_password else ""
        # Without a password OpenSSL would ask for one on the terminal.
        _attempt("certificate", certificate, lambda: context.load_cert_chain(certificate, key, password=lambda: secret))
    if settings.ciphers:
        _set_ciphers(context, settings.ciphers)
    return context


def _attempt(what: str, path: str, action: Callable[[], object]) -> None:
    try:
        action()
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigInvalid(f"the {what} {path} can't be used: {error}; check the file and its password") from error


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"the file {path} can't be read: {error.strerror}; it must be readable where the task "
                            "runs") from error
    if data.startswith(_JAVA_STORES):
        raise ConfigInvalid(
            f"{path} is a Java key store (JKS), which only Java can read; convert it with: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {_NEW_STORE} -deststoretype PKCS12, and name {_NEW_STORE} instead")
    return data


def _is_pkcs12(path: str) -> bool:
    return b"-----BEGIN" not in _read(path)


def _certificates(path: str, password: Password | None) -> str | bytes:
    data = _read(path)
    if b"-----BEGIN" in data:
        return data.decode("ascii", errors="replace")
    _, own, others = _pkcs12(path, data, password)
    return "".join(part for part in [own, *others] if part)


def _key_and_chain(path: str, password: Password | None) -> str:
    data = _read(path)
    if b"-----BEGIN" in data:
        return data.decode("ascii", errors="replace")
    key, own, others = _pkcs12(path, data, password)
    if not key or not own:
        raise ConfigInvalid(f"the key store {path} has no key with a certificate; a trust store may have been named by mistake")
    return "".join([key, own, *others])


def _pkcs12(path: str, data: bytes, password: Password | None) -> tuple[str, str, list[str]]:
    """Key, its certificate and the other certificates, all as PEM, empty where there is none."""
    try:
        forms = import_module("cryptography.hazmat.primitives.serialization")
        pkcs12 = import_module("cryptography.hazmat.primitives.serialization.pkcs12")
    except ImportError as error:
        raise ConfigInvalid(
            f"{path} looks like a PKCS12 store, and the Python package cryptography that reads those is not installed; "
            f"install it, or convert the store with: openssl pkcs12 -in {path} -out store.pem -nodes") from error
    try:
        store = pkcs12.load_pkcs12(data, password.value.encode() if password else None)
    except ValueError as error:
        raise ConfigInvalid(f"the store {path} can't be opened: {error}; it must be PEM or PKCS12, and its password "
                            "right") from error
    pem = forms.Encoding.PEM
    key = store.key.private_bytes(pem, forms.PrivateFormat.PKCS8, forms.NoEncryption()).decode() if store.key else ""
    own = store.cert.certificate.public_bytes(pem).decode() if store.cert else ""
    return key, own, [item.certificate.public_bytes(pem).decode() for item in store.additional_certs]


def _load_chain(context: ssl.SSLContext, pem: str, password: Password | None) -> None:
    # The ssl module reads keys from files only; the file is readable by this user alone and lives for this call.
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(pem)
        secret = password.value if password is not None else ""
        context.load_cert_chain(name, password=lambda: secret)
    finally:
        Path(name).unlink()


def openssl_cipher(name: str) -> str:
    """OpenSSL's name of a cipher suite that Java calls ``name``; names that are not Java's are left as they are.

    Java's are the standard's: ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` is ``ECDHE-RSA-AES128-GCM-SHA256``.
    """
    body = name.removeprefix("TLS_").removeprefix("SSL_")
    if body == name or "_WITH_" not in body:
        return name
    exchange, _, rest = body.partition("_WITH_")
    cipher = rest.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("3DES_EDE_CBC", "DES-CBC3")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_CBC_", "_")
    exchange = "" if exchange == "RSA" else exchange + "-"
    return (exchange + cipher).replace("_", "-")


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    # Suites of TLS 1.3 are always on in Python; a list without any of them means TLS 1.2 at most.
    newer = [name for name in names if name.startswith("TLS_") and "_WITH_" not in name]
    older = [openssl_cipher(name.strip()) for name in names if name not in newer]
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError as error:
        raise ConfigInvalid(f"none of the cipher suites {', '.join(names)} can be used here; name suites that this Python's "
                            f"OpenSSL ({ssl.OPENSSL_VERSION}) has: {error}") from error
