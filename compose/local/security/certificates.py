"""Certificates for the local stack: an authority of its own, and servers' and clients' certificates that it signs."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from compose.local.ports import LOOPBACK

_LIFE = dt.timedelta(days=30)
_SINCE = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """A private key with its certificate.

    Attributes:
        key: The key.
        certificate: The certificate.
        issuer: The authority's certificate.
    """

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        """The key as PEM (PKCS 8), encrypted if there is a password."""
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ).decode()

    @property
    def chain_pem(self) -> str:
        """The certificate and its authority's as PEM."""
        return "".join(
            certificate.public_bytes(serialization.Encoding.PEM).decode()
            for certificate in (self.certificate, self.issuer)
        )

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Write key and chain into one file, readable by this user alone, and return its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(self.key_pem(password) + self.chain_pem, encoding="ascii")
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        """Write key and chain as a PKCS12 store and return its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"own", self.key, self.certificate, [self.issuer], BestAvailableEncryption(password.encode())
            )
        )
        return path


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that only the local stack trusts."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str = "Millrace local stack") -> Self:
        """A new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key, _sign_certificate(name, key, name, key, [], authority=True))

    @property
    def pem(self) -> str:
        """Its certificate as PEM: a trust store."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def write_pem(self, path: Path) -> Path:
        """Write that and return its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.pem, encoding="ascii")
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        """Write its certificate as a PKCS12 trust store that Java reads too, and return its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            pkcs12.serialize_java_truststore(
                [pkcs12.PKCS12Certificate(self.certificate, b"authority")], BestAvailableEncryption(password.encode())
            )
        )
        return path

    def issue(self, name: str, hosts: Sequence[str] = (LOOPBACK, "localhost"), since: dt.timedelta = _SINCE) -> Issued:
        """A certificate for the common name, valid for 30 days after it began.

        Args:
            name: The common name.
            hosts: The addresses a server may be reached by.
            since: How long ago its validity began.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return Issued(
            key,
            _sign_certificate(name, key, str(issuer), self.key, hosts, authority=False, since=since),
            self.certificate,
        )


def _sign_certificate(name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey,
            hosts: Sequence[str], *, authority: bool, since: dt.timedelta = _SINCE) -> x509.Certificate:  # fmt: skip
    start = dt.datetime.now(dt.UTC) - since
    builder = (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(_common_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + _LIFE)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.KeyUsage(digital_signature=True, content_commitment=False, key_encipherment=False,
                                     data_encipherment=False, key_agreement=False, key_cert_sign=authority,
                                     crl_sign=authority, encipher_only=False, decipher_only=False), critical=True)
    )  # fmt: skip
    if not authority:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative_name(host) for host in hosts]), critical=False
        )
    return builder.sign(signer, hashes.SHA256())


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
