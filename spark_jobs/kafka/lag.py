"""The job's place in Kafka: what topics hold now, how far behind the job is, and the consumer group that shows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as kafka_admin

from connectors.errors import ConfigInvalid, Retriable
from spark_jobs.kafka import clients, kafka_errors
from spark_jobs.kafka.groups import read_committed
from spark_jobs.kafka.ranges import ExistingTopic, Offsets
from worker.transforms.java.regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.options import Config

#: Earliest and latest; the package's types leave it out.
_SPEC: Final[Any] = vars(kafka_admin)["OffsetSpec"]
#: librdkafka's own lines on lost connections, many a second: each error that matters is raised and reported once.
_SILENT: Final = 2
#: So often partitions of topics are asked for again, seconds.
_TOPOLOGY_S: Final = 10.0
#: Topics or partitions that are not there.
_ABSENT: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    kafka_errors.UNKNOWN_TOPIC,
    kafka_errors.UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
)
#: A login is refused.
_REFUSED: Final = (KafkaError.SASL_AUTHENTICATION_FAILED, kafka_errors.AUTHENTICATION)
#: What a login may not do.
_FORBIDDEN: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)


class KafkaView:
    """Asks and tells Kafka what the frame needs. Calls block, for ``timeout_s`` or a little more; not shared between threads.

    Args:
        config: the job's.
        timeout_s: how long one call may take.
    """

    def __init__(self, config: Config, timeout_s: float = 15.0) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._admin: Any = None
        self._group: Any = None
        #: What the admin client said last of a connection.
        self._connection_error: KafkaError | None = None
        #: Topics, when they were asked for, and their partitions.
        self._described: tuple[tuple[str, ...], int, list[tuple[str, int]]] | None = None
        committed = config["source.isolation.level"] == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    @property
    def admin(self) -> Any:
        """The admin client, made on first use."""
        if self._admin is None:
            self._connection_error = None
            settings: dict[str, Any] = {"log_level": _SILENT, "error_cb": self._note_error}
            self._admin = kafka_admin.AdminClient({**clients.build_client_config(self._config), **settings})
        return self._admin

    def _note_error(self, error: KafkaError) -> None:
        if error.code() != kafka_errors.ALL_BROKERS_DOWN:
            self._connection_error = error

    def topics(self) -> list[str]:
        """The names of all topics that the job may see, internal ones left out.

        Raises:
            Retriable: Kafka does not answer.
        """
        try:
            topics_by_name = self.admin.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise self._make_unavailable(error) from error
        return sorted(name for name in topics_by_name if name not in ("__consumer_offsets", "__transaction_state"))

    def existing(self, topics: Iterable[str]) -> dict[str, ExistingTopic]:
        """Read the topics' ids and offsets, by name; topics that do not exist are left out.

        Raises:
            Retriable: Kafka does not answer, or a partition has no leader.
            ConfigInvalid: the job may not look at a topic.
        """
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        described = self._collect_results(
            self.admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
        )
        parts = {name: [partition.id for partition in topic.partitions] for name, topic in described.items()}
        where = [TopicPartition(name, number) for name, numbers in parts.items() for number in numbers]
        # Both questions are on their way before the first answer is waited for: each batch asks them.
        asked = [self._ask_offsets(where, spec) for spec in (_SPEC.earliest(), _SPEC.latest())]
        first, end = map(self._await_offsets, asked)
        return {
            name: ExistingTopic(
                str(described[name].topic_id or ""),
                {number: first[name, number] for number in numbers if (name, number) in first},
                {number: end[name, number] for number in numbers if (name, number) in end and (name, number) in first},
            )
            for name, numbers in parts.items()
        }

    def ends(self, where: Iterable[tuple[str, int]]) -> Offsets:
        """The offset after the last record that may be read now, by partition; as ``existing`` raises."""
        return self._read_offsets([TopicPartition(*topic_partition) for topic_partition in where], _SPEC.latest())

    def topics_read(self) -> list[str]:
        """The topics that the job reads now; a pattern's are those that match. Raises as ``topics``."""
        if self._config["source.topics"]:
            return list(self._config["source.topics"])
        pattern = compile_java(self._config["source.topics.pattern"])
        return [name for name in self.topics() if pattern.fullmatch(name)]

    def standing(self, topics: Sequence[str], known_positions: Offsets) -> tuple[Offsets, Offsets]:
        """Positions and ends of all partitions of topics; what does not exist is left out. Raises as ``existing``.

        Args:
            topics: names.
            known_positions: positions; a partition that is not among them is read from its first record.
        """
        parts = self._list_partitions(topics)
        ends = self.ends(parts)
        new = [TopicPartition(*topic_partition) for topic_partition in parts if topic_partition not in known_positions]
        return {where: offset for where, offset in known_positions.items() if where in ends} | self._read_offsets(
            new, _SPEC.earliest()
        ), ends

    def _list_partitions(self, topics: Sequence[str]) -> list[tuple[str, int]]:
        """All partitions of topics; asked again now and then, as they seldom change."""
        now = time.monotonic()
        if self._described is None or self._described[:2] != (tuple(topics), int(now / _TOPOLOGY_S)):
            answers = self._collect_results(
                self.admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout_s)
            )
            topic_partitions = [
                (name, partition.id) for name, topic in answers.items() for partition in topic.partitions
            ]
            self._described = tuple(topics), int(now / _TOPOLOGY_S), topic_partitions
        return self._described[2]

    def _read_offsets(self, where: list[TopicPartition], spec: Any) -> Offsets:
        return self._await_offsets(self._ask_offsets(where, spec))

    def _ask_offsets(self, where: list[TopicPartition], spec: Any) -> dict[Any, Any]:
        if not where:
            return {}
        futures: dict[Any, Any] = self.admin.list_offsets(
            dict.fromkeys(where, spec), isolation_level=self._isolation, request_timeout=self._timeout_s
        )
        return futures

    def _await_offsets(self, futures: Mapping[Any, Any]) -> Offsets:
        answers = self._collect_results(futures)
        if any(answer.offset < 0 for answer in answers.values()):
            # While a partition's leader is lost there may be an answer without an error and without an offset.
            raise self._make_unavailable(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
        return {
            (topic_partition.topic, topic_partition.partition): answer.offset
            for topic_partition, answer in answers.items()
        }

    def _collect_results(self, futures: Mapping[Any, Any]) -> dict[Any, Any]:
        """Results by key, without those of what does not exist."""
        result = {}
        for key, future in futures.items():
            try:
                result[key] = future.result(self._timeout_s * 2)
            except KafkaException as error:
                if error.args[0].code() not in _ABSENT:
                    raise self._make_unavailable(error) from error
            except TimeoutError as error:
                raise self._make_unavailable(KafkaException(KafkaError(kafka_errors.TIMED_OUT))) from error
        return result

    def _make_unavailable(self, error: KafkaException) -> Exception:
        cause = error.args[0]
        servers = self._config["kafka.bootstrap.servers"]
        # A call of a client whose login is refused just takes too long. Why, it has said of its connection.
        self.admin.poll(0)
        if self._connection_error is not None and self._connection_error.code() in _REFUSED:
            cause = self._connection_error
        if cause.code() in _REFUSED:
            user = clients.describe_user(self._config)
            return ConfigInvalid(
                f"Kafka at {servers} refuses the login{user}: {cause.str()}: correct "
                "kafka.sasl.jaas.config (user and password) and kafka.sasl.mechanism"
            )
        if cause.code() in _FORBIDDEN:
            user = clients.describe_user(self._config)
            return ConfigInvalid(
                f"kafka.bootstrap.servers {servers}: {cause.str()}: give the login{user} the ACLs "
                "that it lacks (the job needs DESCRIBE and READ on its topics, READ on its group)"
            )
        # A client whose controller died may wait for it forever: the next call creates another one, which asks all servers.
        self._admin = self._described = None
        return Retriable(
            f"Kafka at {servers} does not answer: {cause.str()}; check kafka.bootstrap.servers and the brokers"
        )

    def commit(self, position: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets to the job's group, so that tools show its lag; nothing reads them back.

        Raises:
            Retriable: Kafka does not answer, or somebody else is a member of the group.
            ConfigInvalid: the job may not commit to the group.
        """
        if self._group is None:
            self._group = Consumer(
                {
                    **clients.build_client_config(
                        self._config, group_id=self._config["kafka.group.id"], enable_auto_commit=False
                    ),
                    "log_level": _SILENT,
                }
            )
        try:
            answers = self._group.commit(
                offsets=[TopicPartition(topic, partition, offset) for (topic, partition), offset in position.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            raise self._make_unavailable(error) from error
        for answer in answers or ():
            if answer.error is not None and answer.error.code() not in _ABSENT:
                raise self._make_unavailable(KafkaException(answer.error))

    def members(self, group: str) -> int:
        """How many running members a consumer group has; 0 for one that does not exist.

        Raises:
            Retriable: Kafka does not answer.
            ConfigInvalid: the job may not look at the group.
        """
        try:
            answer = self.admin.describe_consumer_groups([group], request_timeout=self._timeout_s)[group].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            raise self._make_unavailable(error) from error
        return len(answer.members)

    def committed(self, where: Iterable[tuple[str, int]], group: str = "") -> Offsets:
        """Read a group's committed offsets; those of the job's group, unless another one is named.

        Raises:
            Retriable: Kafka does not answer.
            ConfigInvalid: the job may not read the group's offsets.
        """
        group = group or self._config["kafka.group.id"]
        consumer = Consumer(
            {
                **clients.build_client_config(self._config, group_id=group, enable_auto_commit=False),
                "log_level": _SILENT,
            }
        )
        try:
            committed_positions = read_committed(
                consumer, [TopicPartition(*topic_partition) for topic_partition in where], self._timeout_s
            )
        except KafkaException as error:
            raise self._make_unavailable(error) from error
        finally:
            consumer.close()
        return {
            (topic_partition.topic, topic_partition.partition): topic_partition.offset
            for topic_partition in committed_positions
            if topic_partition.offset >= 0
        }

    def close(self) -> None:
        """Let the clients go."""
        if self._group is not None:
            self._group.close()
            self._group = None
        self._admin = None
