"""Users, tokens and certificates for tests."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def cheap_hash(password: str) -> str:
    """A hash that costs a test nothing."""
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt" * 4, 10_000)
    return (
        f"$pbkdf2-sha256$10000${base64.b64encode(b'salt' * 4).decode().rstrip('=')}${base64.b64encode(digest).decode()}"
    )


def basic(user: str, password: str) -> dict[str, str]:
    """The header of basic authentication."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def write_users(path: Path, users: Mapping[str, str]) -> str:
    """A users file from ``name -> role,...``: each one's password is the name backwards; "certificate,..." has none."""
    path.write_text(
        "".join(
            f"{name}={roles if roles.startswith('certificate') else f'{cheap_hash(name[::-1])},{roles}'}\n"
            for name, roles in users.items()
        )
    )
    return str(path)


class Authority:
    """Makes certificates for 127.0.0.1 and localhost."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._certificate = self._signed(self._name, self._key, authority=True)

    @property
    def pem(self) -> str:
        """Its own certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def store(self, path: Path, *subject: tuple[x509.ObjectIdentifier, str]) -> str:
        """Write a file with a new key and its certificate for a subject."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(x509.Name([x509.NameAttribute(*part) for part in subject]), key)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return str(path)

    def trust(self, path: Path) -> str:
        """Write its certificate to a file."""
        path.write_text(self.pem)
        return str(path)

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            # Python 3.13 and later refuse an authority that does not name its use.
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=authority,
                    crl_sign=authority,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
