"""The decisions of two-phase commits: one record per job in a compacted topic, written by one producer at a time."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.kafka import clients
from spark_jobs.kafka.topics import create_topic
from spark_jobs.sinks.kafka.markers import explain_failure, make_quiet_logger, read_newest
from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from connectors.options import Config

_TIMEOUT_S: Final = 30.0
_KEY: Final = b"decision"


@dataclass(frozen=True, slots=True)
class Decision:
    """A batch is committed.

    Attributes:
        batch: its number.
        attempt: of its transaction.
        checkpoint: stands for the checkpoint in which the number counts.
        ranges: its offsets, as ``write_ahead_log.ranges_of`` returns them.
    """

    batch: int
    attempt: str
    checkpoint: str
    ranges: tuple[tuple[str, int, int, int], ...]

    @classmethod
    def parse(cls, record_value: bytes) -> Decision:
        """The decision in a record. Pure."""
        data = json.loads(record_value)
        ranges = tuple((topic, part, start, end) for topic, part, start, end in data.pop("ranges"))
        return cls(ranges=ranges, **data)


class Decisions:
    """The decisions of one job. All methods block. Not thread-safe.

    The constructor makes the topic, fences the producers of earlier runs, and reads the last decision.

    Args:
        config: the job's.
        name: the job's name.

    Attributes:
        job: 12 hexadecimal digits that stand for the job and its Kafka cluster.
        last: the last decision; None before the first.

    Raises:
        Retriable: Kafka does not answer.
        Fatal: it refuses this user.
    """

    def __init__(self, config: Config, name: str) -> None:
        from confluent_kafka import KafkaException, Producer
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one

        client = clients.build_client_config(config)
        self.topic = f"{config.get('kafka.group.id') or f'millrace-{name}'}-decisions"
        admin = AdminClient(client)
        try:
            with limit("the question for the cluster's id", _TIMEOUT_S):
                cluster = str(admin.list_topics(timeout=_TIMEOUT_S).cluster_id)
            create_topic(admin, NewTopic(self.topic, 1, -1, config={"cleanup.policy": "compact"}), _TIMEOUT_S)
            self._producer: Any = Producer(
                {**client, "transactional.id": self.topic, "linger.ms": 0}, logger=make_quiet_logger()
            )
            with limit(f"init_transactions of {self.topic}", _TIMEOUT_S):
                self._producer.init_transactions(_TIMEOUT_S)
        except KafkaException as error:
            raise explain_failure(
                error, f"two-phase commit: decisions can't be written to topic {self.topic}"
            ) from error
        self.job = hashlib.sha256(f"{cluster} {name}".encode()).hexdigest()[:12]
        newest = read_newest(client, self.topic, f"{self.topic}-reader", _TIMEOUT_S).get(_KEY)
        self.last = Decision.parse(newest) if newest is not None else None

    def decide(self, decision: Decision) -> None:
        """Save a decision. When it raises, the decision may or may not be saved: only a new ``Decisions`` knows.

        Raises:
            Retriable: it is not sure that Kafka has it, or a later run has fenced this one.
            Fatal: Kafka refuses it.
        """
        from confluent_kafka import KafkaException

        try:
            with limit(f"the decision in {self.topic}", 2 * _TIMEOUT_S):
                self._producer.begin_transaction()
                self._producer.produce(self.topic, json.dumps(asdict(decision)).encode(), _KEY)
                self._producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            message = (
                f"two-phase commit: the decision about batch {decision.batch} can't be written to topic {self.topic}"
            )
            reason = explain_failure(error, message)
            # Also a refusal may come after the record: only a new look shows whether it is decided.
            raise (reason if isinstance(reason, Fatal) else Retriable(str(reason))) from error
        self.last = decision

    def close(self) -> None:
        """Let the producer go."""
        with limit(f"the end of the producer of {self.topic}", _TIMEOUT_S):
            self._producer = None
