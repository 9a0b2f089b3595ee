"""A job whose login Kafka refuses: the error names the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compose.local.security.kafka_security import SCRAM, jaas_config
from connectors.errors import ConfigInvalid
from spark_jobs.config import job_files as config
from spark_jobs.kafka.lag import KafkaView

if TYPE_CHECKING:
    from tests.integration.security.conftest import SecuredKafka


def test_a_wrong_password_is_named_with_its_user(secured: SecuredKafka) -> None:
    job = config.build_job(
        {
            "name": "login",
            "kafka.bootstrap.servers": secured.cluster.secured(SCRAM),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": jaas_config("alice", "not-the-Password", "SCRAM-SHA-512"),
            **{f"kafka.{name}": value for name, value in secured.trust.items()},
            "source.topics": "t",
            "source.format": "plain",
            "sink.type": "console",
        }
    )
    view = KafkaView(job.config, timeout_s=3)
    try:
        for ask in (view.topics, lambda: view.committed([("t", 0)])):
            with pytest.raises(
                ConfigInvalid, match=r"refuses the login of alice: .*: correct kafka\.sasl\.jaas\.config"
            ) as said:
                ask()
            assert "not-the-Password" not in str(said.value)
    finally:
        view.close()
