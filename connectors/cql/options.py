"""The options of a connection to a cluster that speaks CQL, declared once for all that connect to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.cluster.session import SessionSettings
from connectors.cql.cluster.tls import CqlTlsSettings
from connectors.options import ConfigKey, KeyGroup, Validator, Width, at_least
from connectors.tls import keystore_key, keystore_password_key, truststore_key, truststore_password_key

if TYPE_CHECKING:
    from collections.abc import Mapping

#: More than one only spreads load over a server's threads (shards) where the driver does not.
CONNECTIONS_PER_HOST: Final = 1
#: How long a connection may be silent before it is tried, in seconds, and then wait for an answer.
HEARTBEAT_S: Final = 10.0
#: Of the native protocol; all servers that matter speak 4.
PROTOCOL_VERSION: Final = 4

_CONNECTION: Final = KeyGroup("Connection")
_TLS: Final = KeyGroup("TLS")


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """One declaration for each option of a connection; a connector lists them in its own order."""

    user: ConfigKey
    password: ConfigKey
    local_dc: ConfigKey
    compression: ConfigKey
    query_timeout: ConfigKey
    connect_timeout: ConfigKey
    tls: ConfigKey
    truststore: ConfigKey
    truststore_password: ConfigKey
    keystore: ConfigKey
    keystore_password: ConfigKey
    certificate: ConfigKey
    private_key: ConfigKey
    ciphers: ConfigKey
    verify_hosts: ConfigKey

    def session(
        self,
        config: Mapping[str, Any],
        contact_points: tuple[tuple[str, int], ...],
        consistency: str,
        *,
        use_keystore: bool = True,
    ) -> SessionSettings:
        """How to connect; equal for all connectors and tasks that connect alike, which then share a session."""
        return session_settings(
            contact_points=contact_points,
            user=config[self.user.name],
            password=config[self.password.name],
            local_dc=config[self.local_dc.name] or None,
            consistency=consistency,
            compression=str(config[self.compression.name]).strip().lower(),
            request_timeout_s=config[self.query_timeout.name] / 1000,
            connect_timeout_s=config[self.connect_timeout.name] / 1000,
            tls=self._tls_settings(config, use_keystore=use_keystore) if config[self.tls.name] else None,
        )

    def _tls_settings(self, config: Mapping[str, Any], *, use_keystore: bool) -> CqlTlsSettings:
        return CqlTlsSettings(
            truststore=config[self.truststore.name] or None,
            truststore_password=config[self.truststore_password.name],
            keystore=config[self.keystore.name] or None if use_keystore else None,
            keystore_password=config[self.keystore_password.name],
            certificate=config[self.certificate.name] or None,
            private_key=config[self.private_key.name] or None,
            ciphers=tuple(item for item in config[self.ciphers.name] or () if item),
            check_hostname=config[self.verify_hosts.name],
            verify=True,
        )


def session_settings(**settings: Any) -> SessionSettings:
    """A session with these settings, and those that no option sets."""
    return SessionSettings(
        connections_per_host=CONNECTIONS_PER_HOST,
        heartbeat_s=HEARTBEAT_S,
        protocol_version=PROTOCOL_VERSION,
        **settings,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWording:
    """The differences between the connectors' declarations: names, sentences and older names."""

    user: str
    user_aliases: tuple[str, ...] = ()
    user_example: str
    user_rights: str
    compressions: Validator
    compression: str
    query_retry: str = ""
    certificate: str = ""
    certificate_aliases: tuple[str, ...] = ()
    private_key_aliases: tuple[str, ...] = ()
    ciphers_aliases: tuple[str, ...] = ()
    verify_hosts: bool
    verify_hosts_reason: str = ""


def cluster_keys(prefix: str, wording: ClusterWording) -> ClusterKeys:
    """The options of a connection under ``prefix`` (``scylla.``)."""
    tls = f"{prefix}ssl."
    return ClusterKeys(
        user=_CONNECTION.high.string(
            f"{prefix}{wording.user}",
            f"Role to log in as. Without it no credentials are sent. It needs SELECT {wording.user_rights}",
            default=None,
            aliases=wording.user_aliases,
            width=Width.SHORT,
            display_name="User",
            example=wording.user_example,
        ),
        password=_CONNECTION.high.password(
            f"{prefix}password",
            f"The role's password; needed with {prefix}{wording.user}.",
            default=None,
            width=Width.SHORT,
            display_name="Password",
        ),
        local_dc=_CONNECTION.low.string(
            f"{prefix}local.dc",
            "Data centre whose nodes are asked first; the others are asked only if none of it answers. Not set: the data "
            "centre of the first host that answers.",
            default=None,
            width=Width.MEDIUM,
            display_name="Local data centre",
            example="dc1",
        ),
        compression=_CONNECTION.low.string(
            f"{prefix}compression",
            f"Compression between the nodes and the worker: none, or lz4, which costs {wording.compression}",
            default="none",
            validator=wording.compressions,
            display_name="Compression",
        ),
        query_timeout=_CONNECTION.low.integer(
            f"{prefix}query.timeout.ms",
            "How long to wait for a page before the query counts as failed and is retried" + wording.query_retry + ".",
            default=12_000,
            unit="ms",
            validator=at_least(100),
            display_name="Query timeout",
        ),
        connect_timeout=_CONNECTION.low.integer(
            f"{prefix}connect.timeout.ms",
            "How long to wait for a connection to a node.",
            default=5_000,
            unit="ms",
            validator=at_least(100),
            display_name="Connection timeout",
        ),
        tls=_TLS.high.boolean(f"{tls}enabled", "Whether to connect with TLS.", default=False, display_name="TLS"),
        truststore=truststore_key(_TLS, f"{tls}truststore.path", "/etc/millrace/truststore.p12"),
        truststore_password=truststore_password_key(_TLS, f"{tls}truststore.password"),
        keystore=keystore_key(_TLS, f"{tls}keystore.path", "worker", "nodes demand"),
        keystore_password=keystore_password_key(_TLS, f"{tls}keystore.password"),
        certificate=_TLS.string(
            f"{tls}certificate.path",
            f"PEM file with the worker's certificate and those above it{wording.certificate}.",
            default=None,
            aliases=wording.certificate_aliases,
            display_name="Certificate chain",
            example="/etc/millrace/client.pem",
        ),
        private_key=_TLS.string(
            f"{tls}private.key.path",
            "PEM file with the key of the certificate.",
            default=None,
            aliases=wording.private_key_aliases,
            display_name="Private key",
            example="/etc/millrace/client.key",
        ),
        ciphers=_TLS.low.strings(
            f"{tls}cipher.suites",
            "Cipher suites to offer, by OpenSSL's or by Java's names. Not set: the worker's defaults.",
            default=None,
            aliases=wording.ciphers_aliases,
            display_name="Cipher suites",
            example="ECDHE-RSA-AES256-GCM-SHA384",
        ),
        verify_hosts=_TLS.low.boolean(
            f"{tls}hostname.verification",
            f"Whether a node's certificate must name the address that is connected to.{wording.verify_hosts_reason}",
            default=wording.verify_hosts,
            display_name="Verify host names",
        ),
    )
