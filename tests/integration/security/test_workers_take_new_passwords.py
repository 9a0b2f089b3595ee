"""A worker whose own password is changed in Kafka while it runs, and every connection of which is cut then.

In the slow suite only: the broker is started again.
"""

from __future__ import annotations

import secrets
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.security.kafka_security import SCRAM, jaas_config
from compose.local.worker import MillraceWorker
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.security.conftest import SecuredKafka

pytestmark = pytest.mark.slow

#: What docs/security.md says a worker's user needs; all of this worker's names begin with its group.
PERMISSIONS = {"TOPIC": ("DESCRIBE", "DESCRIBE_CONFIGS", "CREATE", "READ", "WRITE"), "GROUP": ("READ",)}


class Login:
    """A user of SCRAM, and the file that holds its password."""

    def __init__(self, kafka: SecuredKafka, user: str, folder: Path) -> None:
        self._kafka = kafka
        self._user = user
        self._file = folder / "login.properties"

    @property
    def properties(self) -> dict[str, str]:
        reference = f"${{file:{self._file}:password}}"
        return {
            "config.providers": "file",
            "config.providers.file.class": "FileConfigProvider",
            "config.providers.refresh.interval.ms": "300",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            **self._kafka.trust,
            "sasl.jaas.config": jaas_config(self._user, "HERE", "SCRAM-SHA-512").replace("HERE", reference),
        }

    def change(self, password: str) -> None:
        """Change the password in Kafka, then in the file; returns when Kafka takes the new one."""
        of_admin: Any = import_module("confluent_kafka.admin")  # its types hide the names used here
        info = of_admin.ScramCredentialInfo(of_admin.ScramMechanism.SCRAM_SHA_512, 4096)
        admin = self._kafka.admin()
        upsertion = of_admin.UserScramCredentialUpsertion(self._user, info, password.encode())
        admin.alter_user_scram_credentials([upsertion])[self._user].result(10)
        deadline = time.monotonic() + 20
        while not self.lets_in(password):
            assert time.monotonic() < deadline, "Kafka did not take over the password"
        self._file.write_text(f"password={password}\n")

    def lets_in(self, password: str) -> bool:
        from confluent_kafka import KafkaException

        admin = self._kafka.admin(
            **{
                "bootstrap.servers": self._kafka.cluster.secured(SCRAM),
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": self._user,
                "sasl.password": password,
                "ssl.ca.location": str(self._kafka.stores / "trust.pem"),
            }
        )
        try:
            admin.list_topics(timeout=2)
        except KafkaException:
            return False
        return True


def test_a_worker_takes_its_new_password_over(secured: SecuredKafka, tmp_path: Path) -> None:
    group = f"renewed-{secrets.token_hex(4)}"
    login = Login(secured, group, tmp_path)
    for kind, operations in PERMISSIONS.items():
        secured.allow(group, kind, group, *operations)
    for prefix in (group, f"connect-cluster-{group}"):
        secured.allow(group, "TRANSACTIONAL_ID", prefix, "DESCRIBE", "WRITE")
    login.change("first-Secret-10")
    worker = MillraceWorker(
        tmp_path / "worker",
        secured.cluster.secured(SCRAM),
        group=group,
        port=None,
        processes=1,
        properties={**login.properties, "exactly.once.source.support": "enabled"},
    )
    worker.start()
    try:
        pid = worker.pid

        def create(name: str) -> None:
            (tmp_path / f"{name}.txt").write_text("one\ntwo\n")
            worker.create(
                name,
                {
                    "connector.class": "file",
                    "file": str(tmp_path / f"{name}.txt"),
                    "tasks.max": "1",
                    "topic": f"{group}-{name}",
                },
            )
            worker.wait_running(name, 1, 60)

        create("before")
        login.change("second-Secret-11")
        worker.wait_for(
            lambda: "own Kafka clients use new values of sasl.jaas.config" in worker.log_path.read_text(),
            30,
            "the worker did not take the password over",
            worker.service.log_tail,
        )
        assert not login.lets_in("first-Secret-10")
        # Every connection is opened again, with a password: those of the group, the stores, the leader's producer, the tasks.
        secured.cluster.stop()
        secured.cluster.start()
        worker.wait_for(
            lambda: worker.request("GET", "/health")[0] == 200 and worker.states("before")[1] == ["RUNNING"],
            90,
            "the worker did not come back",
            worker.service.log_tail,
        )

        def created() -> bool:
            try:
                create("after")
            except Exception as error:  # noqa: BLE001 - a leader that is just coming back refuses for a moment
                failures.append(error)
                return False
            return True

        failures: list[Exception] = []
        worker.wait_for(created, 90, "no connector can be made", lambda: failures[-1:])
        (tmp_path / "before.txt").write_text("one\ntwo\nthree\n")
        for name, count in (("before", 3), ("after", 2)):
            worker.wait_for(
                lambda name=name, count=count: (
                    len(  # type: ignore[misc]  # mypy infers no types of defaults
                        read_topic(secured.cluster.bootstrap, f"{group}-{name}", committed=True)
                    )
                    == count
                ),
                30,
                f"{name} does not write",
                worker.service.log_tail,
            )
        assert worker.pid == pid
        log = worker.log_path.read_text()
        assert "Secret-1" not in log
        assert "started again: do that" not in log
    finally:
        worker.kill()
