"""Listeners of the local Kafka with logins, TLS and permissions, in addition to the one without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from compose.local.ports import LOOPBACK
from compose.local.security.certificates import Authority

_SECURITY: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class KafkaListener:
    """A kind of listener.

    Attributes:
        name: Its name in the broker's properties.
        protocol: Its security protocol.
        mechanisms: SASL mechanisms that it takes.
        client_auth: Whether clients have to show a certificate.
    """

    name: str
    protocol: str
    mechanisms: tuple[str, ...] = ()
    client_auth: bool = False


PLAIN: Final = KafkaListener("PLAIN", "SASL_PLAINTEXT", ("PLAIN",))
SCRAM: Final = KafkaListener("SCRAM", "SASL_SSL", ("SCRAM-SHA-256", "SCRAM-SHA-512"))
MUTUAL: Final = KafkaListener("MUTUAL", "SSL", client_auth=True)
#: Takes unsigned tokens: for development only.
OAUTH: Final = KafkaListener("OAUTH", "SASL_PLAINTEXT", ("OAUTHBEARER",))


@dataclass(slots=True)
class KafkaSecurity:
    """The requirements of a cluster's brokers for clients on separate listeners; for `KafkaCluster(security=...)`.

    The plaintext listener stays, for the brokers themselves and for administration: its user may do everything. Everybody
    else needs a permission (ACL), except the super users.

    Attributes:
        folder: Where certificates are written.
        users: Passwords by user, for PLAIN and SCRAM. They are in the brokers' storage from its first start on.
        super_users: Principals that may do everything, without `User:`; one from a certificate is `CN=name`.
        listeners: Which listeners there are.
        authority: Signs the brokers' certificate, and is believed about clients'.
    """

    folder: Path
    users: Mapping[str, str] = field(default_factory=dict)
    super_users: Sequence[str] = ()
    listeners: Sequence[KafkaListener] = (PLAIN, SCRAM, MUTUAL, OAUTH)
    authority: Authority = field(default_factory=Authority.make)

    @property
    def truststore(self) -> Path:
        """PEM file with the authority's certificate; written by `properties`."""
        return self.folder.absolute() / "authority.pem"

    def properties(self, base: Mapping[str, str], ports: Sequence[int]) -> dict[str, str]:
        """The broker's properties `base` with the listeners, at `ports`. Writes the certificates' files."""
        named = list(zip(self.listeners, ports, strict=True))
        keystore = self.folder.absolute() / "broker.pem"
        if not keystore.exists():
            self.authority.write_pem(self.truststore)
            self.authority.issue("broker").write_pem(keystore)
        addresses = ",".join(f"{listener.name}://{LOOPBACK}:{port}" for listener, port in named)
        result = {
            **base,
            "listeners": f"{base['listeners']},{addresses}",
            "advertised.listeners": f"{base['advertised.listeners']},{addresses}",
            "listener.security.protocol.map": ",".join(
                [
                    base["listener.security.protocol.map"],
                    *(f"{secured.name}:{secured.protocol}" for secured in self.listeners),
                ]
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *self.super_users)),
        }
        for listener in self.listeners:
            prefix = f"listener.name.{listener.name.lower()}."
            if listener.mechanisms:
                result[f"{prefix}sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
            for mechanism in listener.mechanisms:
                result[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = self._jaas_config(mechanism)
            if listener.protocol.endswith("SSL"):
                result |= {
                    f"{prefix}ssl.keystore.type": "PEM",
                    f"{prefix}ssl.keystore.location": str(keystore),
                    f"{prefix}ssl.truststore.type": "PEM",
                    f"{prefix}ssl.truststore.location": str(self.truststore),
                    f"{prefix}ssl.client.auth": "required" if listener.client_auth else "none",
                }
        return result

    def scram_arguments(self) -> list[str]:
        """Arguments of the storage tool that put the users into a cluster's storage."""
        if SCRAM not in self.listeners:
            return []
        return [
            part
            for user, password in self.users.items()
            for mechanism in SCRAM.mechanisms
            for part in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]

    def _jaas_config(self, mechanism: str) -> str:
        if mechanism == "PLAIN":
            users = " ".join(f'user_{user}="{password}"' for user, password in self.users.items())
            return f"{_SECURITY}.plain.PlainLoginModule required {users};"
        if mechanism == "OAUTHBEARER":
            return f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        return f"{_SECURITY}.scram.ScramLoginModule required;"


def jaas_config(user: str, password: str, mechanism: str = "PLAIN") -> str:
    """A client's `sasl.jaas.config`."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{_SECURITY}.{module} required username="{user}" password="{quoted}";'
