"""Key stores, trust stores and cipher suites as users of Java programs have them, for Python's ``ssl``.

PEM and PKCS12 files are recognized by their contents. Private keys are passed to OpenSSL in memory, never by a file.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from connectors.errors import ConfigInvalid
from connectors.options import ConfigKey, KeyGroup, Width

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_JAVA_STORES: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_NEW_STORE: Final = "store.p12"
_PEM: Final = serialization.Encoding.PEM


class Identity(NamedTuple):
    """A private key with its certificates, as one PEM text.

    Attributes:
        pem: the key, then the chain.
        encrypted: whether the key needs a password of its own; one from a PKCS12 store does not any more.
    """

    pem: str
    encrypted: bool


def truststore_key(group: KeyGroup, name: str, example: str, width: Width = Width.NONE) -> ConfigKey:
    """The option ``name`` with the file of certificates that are trusted."""
    return group.string(
        name,
        "File with the certificates that are trusted: PEM or PKCS12. Not set: the system's. A JKS store must be converted "
        "with keytool.",
        default=None,
        width=width,
        display_name="Trust store",
        example=example,
    )


def truststore_password_key(group: KeyGroup, name: str) -> ConfigKey:
    """The option ``name`` with the password of that file."""
    return group.password(name, "Password of the trust store.", default=None, display_name="Trust store password")


def keystore_key(group: KeyGroup, name: str, owner: str, askers: str, width: Width = Width.NONE) -> ConfigKey:
    """The option ``name`` with the file of the client's own certificate; ``owner`` has it, where ``askers`` (demand) one."""
    return group.string(
        name,
        f"File with the {owner}'s own certificate and key, where {askers} one: PEM or PKCS12. A JKS store must be converted "
        "with keytool.",
        default=None,
        width=width,
        display_name="Key store",
        example="/etc/millrace/keystore.p12",
    )


def keystore_password_key(group: KeyGroup, name: str) -> ConfigKey:
    """The option ``name`` with the password of that file and of the key in it."""
    return group.password(
        name, "Password of the key store and of the key in it.", default=None, display_name="Key store password"
    )


def client_context(cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """A client's context that behaves alike on every version of Python. Reads files: blocks for a moment.

    Args:
        cafile: a PEM file with the authorities to trust.
        cadata: these authorities as PEM text. Without both the system's are trusted.

    Raises:
        OSError, ssl.SSLError: the authorities can't be read.
    """
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=cafile, cadata=cadata)
    # Python 3.13 changes both. Certificates that people and servers make often lack what the strict rules ask for,
    # such as the key usage. And as in Java, what a trust store holds is trusted, also if it is no root.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def read_certificates(path: str, password: str | None) -> str:
    """The certificates in a trust store as PEM. Reads the file: blocks for a moment.

    Args:
        path: a PEM or PKCS12 file.
        password: of a PKCS12 file.

    Raises:
        ConfigInvalid: it can't be read or opened; the message says why and how to fix it.
    """
    data = _read_file(path)
    if _is_pem(data):
        return data.decode("ascii", errors="replace")
    _, own_pem, others = _read_pkcs12(path, data, password)
    pem = "".join(part for part in [own_pem, *others] if part)
    if not pem:
        raise ConfigInvalid(
            f"the trust store {path} holds no certificate; name a file with the certificates to be believed"
        )
    return pem


def read_identity(path: str, password: str | None) -> Identity:
    """The private key and the certificate chain in a key store. Reads the file: blocks for a moment.

    Args:
        path: a PEM or PKCS12 file.
        password: of a PKCS12 file.

    Raises:
        ConfigInvalid: it can't be read or opened, or holds no key.
    """
    data = _read_file(path)
    if _is_pem(data):
        return Identity(data.decode("ascii", errors="replace"), encrypted=True)
    key, own_pem, others = _read_pkcs12(path, data, password)
    if not key or not own_pem:
        raise ConfigInvalid(
            f"the key store {path} has no key with a certificate; a trust store may have been named by mistake"
        )
    return Identity("".join([key, own_pem, *others]), encrypted=False)


def find_invalidity(identity: Identity, now: datetime) -> str | None:
    """Why others do not believe the certificate of an identity at a time; None if its dates are right. Pure.

    Args:
        identity: its first certificate is its own.
        now: with a time zone.
    """
    try:
        certificate = x509.load_pem_x509_certificates(identity.pem.encode())[0]
    except ValueError:
        return None  # OpenSSL reads more than this, and says what it can't read
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begin <= now <= end:
        return None
    dates = f"expired at {end:%Y-%m-%d %H:%M} UTC" if now > end else f"is not valid before {begin:%Y-%m-%d %H:%M} UTC"
    return f"the certificate of {certificate.subject.rfc4514_string()} {dates}"


def load_identity(context: ssl.SSLContext, key_identity: Identity, password: str | None) -> None:
    """Give a context its key and certificates.

    Raises:
        ssl.SSLError, OSError: OpenSSL does not accept them.
    """
    # OpenSSL takes keys from files only. This one exists in memory, for this process and this call.
    handle = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(handle), "w", encoding="utf-8") as file:
            file.write(key_identity.pem)
        secret = password if password is not None and key_identity.encrypted else ""
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=lambda: secret)
    finally:
        os.close(handle)


def set_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Allow only these cipher suites, by Java's or OpenSSL's names.

    Raises:
        ConfigInvalid: this OpenSSL has none of them.
    """
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
        raise ConfigInvalid(
            f"none of the cipher suites {', '.join(names)} can be used here; name suites that this Python's "
            f"OpenSSL ({ssl.OPENSSL_VERSION}) has: {error}"
        ) from error


def openssl_cipher(name: str) -> str:
    """OpenSSL's name of a cipher suite that Java calls ``name``; names that are not Java's are left as they are.

    Java's are the standard's: ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` is ``ECDHE-RSA-AES128-GCM-SHA256``.
    """
    body = name.removeprefix("TLS_").removeprefix("SSL_")
    if body == name or "_WITH_" not in body:
        return name
    exchange, _, suite = body.partition("_WITH_")
    cipher = suite.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("3DES_EDE_CBC", "DES-CBC3")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_CBC_", "_")
    exchange = "" if exchange == "RSA" else exchange + "-"
    return (exchange + cipher).replace("_", "-")


def _read_file(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigInvalid(
            f"the file {path} can't be read: {error.strerror}; it must be readable where the worker runs"
        ) from error
    if data.startswith(_JAVA_STORES):
        raise ConfigInvalid(
            f"{path} is a Java key store (JKS), which only Java can read; convert it with: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {_NEW_STORE} -deststoretype PKCS12, and name {_NEW_STORE} instead"
        )
    return data


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN" in data


def _read_pkcs12(path: str, data: bytes, password: str | None) -> tuple[str, str, list[str]]:
    """Key, its certificate and the other certificates, all as PEM; empty where the file has none."""
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError as error:
        raise ConfigInvalid(
            f"the store {path} can't be opened: {error}; it must be PEM or PKCS12, and its password right"
        ) from error
    key = (
        store.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
        if store.key
        else ""
    )
    own_pem = store.cert.certificate.public_bytes(_PEM).decode() if store.cert else ""
    return key, own_pem, [item.certificate.public_bytes(_PEM).decode() for item in store.additional_certs]
