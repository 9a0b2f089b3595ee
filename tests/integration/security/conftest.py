"""One broker with every kind of secured listener for all tests here."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.kafka import KafkaCluster
from compose.local.security.kafka_security import KafkaSecurity
from tests.support.http_services import TokenEndpoint
from worker.fetch.java import FAST_START
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compose.local.security.certificates import Authority

USERS = {"worker": "worker-Secret-1", "alice": "alice-Secret-2", "bob": "bob-Secret-3", "mallory": "mallory-Secret-4"}


class SecuredKafka:
    """The broker, and what clients of it need.

    Attributes:
        cluster: the broker.
        stores: folder with ``trust.pem``, ``trust.p12`` and ``worker.p12``, whose password is ``store-Secret-5``.
        authority: what signs clients' certificates.
        tokens: the token endpoint for OAUTHBEARER.
    """

    def __init__(self, cluster: KafkaCluster, stores: Path, authority: Authority, tokens: TokenEndpoint) -> None:
        self.cluster = cluster
        self.stores = stores
        self.authority = authority
        self.tokens = tokens

    @property
    def trust(self) -> dict[str, str]:
        """Properties of a client that believes the broker's certificate."""
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.stores / "trust.pem")}

    def admin(self, **more: Any) -> Any:
        """A confluent-kafka administration client that may do everything."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.cluster.bootstrap, **more})

    def allow(self, user: str, kind: str, name: str, *operations: str) -> None:
        """Let a user do these things with everything whose name begins with ``name``."""
        admin: Any = import_module("confluent_kafka.admin")  # its types hide these names
        bindings = [
            admin.AclBinding(
                admin.ResourceType[kind],
                name,
                admin.ResourcePatternType.PREFIXED,
                f"User:{user}",
                "*",
                admin.AclOperation[operation],
                admin.AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        client = self.admin()
        for future in client.create_acls(bindings).values():
            future.result(10)


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    folder = tmp_path_factory.mktemp("secured-kafka")
    security = KafkaSecurity(folder / "tls", users=USERS, super_users=("worker", "CN=worker"))
    stores = folder / "stores"
    security.authority.write_pem(stores / "trust.pem")
    security.authority.write_pkcs12(stores / "trust.p12", "store-Secret-5")
    security.authority.issue("worker").write_pkcs12(stores / "worker.p12", "store-Secret-5")
    with ExitStack() as stack:
        cluster = stack.enter_context(
            KafkaCluster(folder, port=None, security=security, jvm_options=FAST_START, say=say)
        )
        tokens = stack.enter_context(TokenEndpoint({"worker": "client-Secret-6"}))
        yield SecuredKafka(cluster, stores, security.authority, tokens)
