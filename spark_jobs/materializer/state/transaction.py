"""One bucket's transactional producer: output, state, marker and consumed offset in one Kafka transaction."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from connectors.errors import Fatal, Retriable
from spark_jobs.kafka import kafka_errors
from spark_jobs.kafka.producers import find_fatal_reason
from spark_jobs.materializer.state.changelog import MARKER_KEY
from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spark_jobs.materializer.config import BucketOptions
    from spark_jobs.materializer.contract import OutputRecord

_TIMEOUT_S: Final = 30.0
#: A transaction without progress for this long is retried by a new producer: that takes a second where brokers answer,
#: and a producer whose broker was lost in the middle may wait for as long as the transaction lives.
_STALLED_S: Final = 15.0
_log = logging.getLogger(__name__)
#: librdkafka's own lines: to be fenced is daily business here, and every error that matters is raised.
_QUIET: Final = logging.getLogger("spark_jobs.materializer.librdkafka")
_QUIET.setLevel(logging.CRITICAL + 1)
#: Errors after which a retry can't help until a person fixes something.
_LASTING: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
    }
)
#: Another producer has taken this transactional id.
_FENCED: Final = frozenset(
    {
        kafka_errors.FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)


class Redo(Exception):
    """The transaction is gone: catch up with the changelog, and do again what is not in it."""

    def __init__(self, reason_text: str, *, replace: bool) -> None:
        super().__init__(reason_text)
        #: Whether the producer can't be used any more.
        self.replace = replace


class BucketWriter:
    """A transactional producer. Making one blocks 60-80 ms: it fences others of the bucket and ends their transaction."""

    def __init__(self, options: BucketOptions, bucket: int) -> None:
        """Make and initialise it.

        Raises:
            Retriable: the brokers don't answer.
            Fatal: they refuse.
        """
        self._options = options
        self._bucket = bucket
        self.identity = f"{options.job}-{bucket}"
        #: Names this producer in markers.
        self.token = secrets.token_hex(6)
        #: Whether a transaction has been started.
        self.open = False
        self._marker_at: int | None = None
        self._failure: KafkaError | None = None
        self._where = -1 if options.partitioner == "murmur2" else bucket
        self._producer = Producer(
            {
                "reconnect.backoff.ms": 10,
                **options.client,
                "transactional.id": self.identity,
                "transaction.timeout.ms": options.transaction_timeout_ms,
                # The default (100 ms) is what makes a fresh producer take half a second.
                "retry.backoff.ms": 20,
                "linger.ms": 20,
                "compression.type": options.compression,
                "batch.num.messages": 20_000,
                "batch.size": 512 << 10,
                "message.max.bytes": options.record_max_bytes + 4096,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": max(options.max_bytes >> 9, 32 << 10),
                "allow.auto.create.topics": False,
            },
            logger=_QUIET,
        )
        self._produce = self._producer.produce
        try:
            self._connect_producer()
        except BaseException:
            self.close()
            raise

    @property
    def _timeout_s(self) -> float:
        """How long one call may take: what takes longer than the transaction may live comes too late anyway."""
        return min(_TIMEOUT_S, self._options.transaction_timeout_ms / 1000)

    @property
    def _stalled_s(self) -> float:
        return min(_STALLED_S, self._timeout_s)

    def _connect_producer(self) -> None:
        options = self._options
        try:
            # Connects, first to an address of bootstrap.servers, then to a broker as the cluster names it. Without the latter
            # librdkafka puts the search for the transaction's coordinator off by half a second.
            for _ in range(2):
                self._call("list_topics", lambda: self._producer.list_topics(options.changelog_topic, self._timeout_s))
            self._call("init_transactions", lambda: self._producer.init_transactions(self._timeout_s))
        except Redo as error:
            raise Retriable(f"the transactional producer {self.identity} can't be initialised: {error}") from error

    def close(self) -> None:
        """Give it up; an open transaction is aborted by the successor or by its timeout. Waits for no broker."""
        self.open = False
        with limit(f"the end of the producer {self.identity}", self._timeout_s):
            self._producer.purge()
            # The last references: librdkafka ends its threads here.
            del self._produce, self._producer

    def begin(self) -> None:
        """Begin a transaction."""
        self._call("begin_transaction", self._producer.begin_transaction)
        self.open = True
        self._marker_at = None

    def outputs(self, records: Iterable[OutputRecord]) -> None:
        """Hand output records over; blocks while the queue is full."""
        topic, where = self._options.output_topic, self._where
        for key, value, timestamp, headers in records:
            if headers:
                self._put(topic, value, key, where, timestamp=timestamp, headers=list(headers))
            else:
                self._put(topic, value, key, where, timestamp=timestamp)

    def changes(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Hand changed rows of state over; blocks while the queue is full."""
        topic, bucket = self._options.changelog_topic, self._bucket
        for key, value in changes:
            self._put(topic, value, key, bucket)

    def dead_letter(
        self, topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> None:
        """Hand a dead letter over: it is there when, and only if, the position has moved over its record."""
        self._put(topic, value, key, -1, headers=headers)

    def _put(self, topic: str, value: bytes | None, key: bytes | None, partition: int, **more: Any) -> None:
        try:
            self._produce(topic, value, key, partition, **more)
        except BufferError:
            self._wait(topic, value, key, partition, more)
        except KafkaException as error:
            self._make_refusal(error, topic, value, key)

    def _wait(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, options: dict[str, Any]
    ) -> None:
        deadline = time.monotonic() + self._options.transaction_timeout_ms / 1000
        while True:
            try:
                self._producer.poll(0.05)
                self._produce(topic, value, key, partition, **options)
            except BufferError:
                if time.monotonic() > deadline:
                    raise Redo(f"the brokers take nothing for {topic}", replace=True) from None
            except KafkaException as error:
                self._make_refusal(error, topic, value, key)
            else:
                return

    def _make_refusal(self, error: KafkaException, topic: str, value: bytes | None, key: bytes | None) -> None:
        problem = find_fatal_reason(self._producer, error).args[0]
        if problem.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise Fatal(
                f"a record for {topic} has {len(value or b'')} bytes, more than "
                f"materializer.record.max.bytes={self._options.record_max_bytes} (bucket {self._bucket}, key "
                f"{(key or b'')[:200]!r}). Raise it, and max.message.bytes of {self._options.output_topic} and "
                f"{self._options.changelog_topic}."
            ) from error
        raise Redo(f"{topic}: {problem}", replace=problem.fatal() or problem.code() in _FENCED) from error

    def commit(
        self, marker: bytes, position: int | None, group: Any, *, before_commit: Callable[[], None] = lambda: None
    ) -> int:
        """Add the marker and the consumed position (None: none), and commit. Returns the marker's offset in the changelog.

        Raises:
            Redo: nothing of it happened, or (after a lost answer) perhaps all of it: the changelog's marker tells.
            Fatal: the brokers refuse.
        """
        options = self._options
        try:
            self._produce(options.changelog_topic, marker, MARKER_KEY, self._bucket, on_delivery=self._note_delivery)
        except BufferError as error:
            raise Redo(str(error), replace=True) from error
        except KafkaException as error:
            raise Redo(
                f"the marker of {self.identity}: {find_fatal_reason(self._producer, error).args[0]}", replace=True
            ) from error
        if position is not None:
            self._call(
                "send_offsets_to_transaction",
                lambda: self._producer.send_offsets_to_transaction(
                    [TopicPartition(options.input_topic, self._bucket, position)], group, self._stalled_s
                ),
                self._stalled_s,
            )
        self._flush()
        before_commit()
        self._call("commit_transaction", lambda: self._producer.commit_transaction(self._stalled_s), self._stalled_s)
        self.open = False
        if self._marker_at is None:
            raise Redo(f"the marker was not delivered: {self._failure}", replace=True)
        return self._marker_at

    def _flush(self) -> None:
        """Wait until every record is delivered, or given up by the producer."""
        waiting, since = len(self._producer), time.monotonic()
        while left := self._count_unsent():
            now = time.monotonic()
            if left != waiting:
                waiting, since = left, now
            elif now - since > self._stalled_s:
                raise Redo(
                    f"no record of {self.identity} was delivered for {self._stalled_s:g} s, {left} wait", replace=True
                )

    def _count_unsent(self) -> int:
        try:
            with limit(f"flush of {self.identity}", self._timeout_s):
                return self._producer.flush(0.5)
        except KafkaException as error:  # fatal ones only: another producer has taken over, for instance
            raise Redo(f"records of {self.identity}: {error.args[0]}", replace=True) from error

    def _note_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._marker_at = message.offset()
        else:
            self._failure = error

    def abort(self) -> bool:
        """Abort the open transaction, if any. Returns False if the producer can't be used any more."""
        if not self.open:
            return True
        self.open = False
        try:
            with limit(f"abort_transaction of {self.identity}", self._timeout_s):
                self._producer.purge()
                self._producer.abort_transaction(self._timeout_s)
        except KafkaException:
            return False
        return True

    def _call(self, action: str, call: Callable[[], None], patience_s: float = 2 * _TIMEOUT_S) -> None:
        """``call`` with the retries that librdkafka asks for, its errors as ours."""
        deadline = time.monotonic() + patience_s
        is_reported = False
        while True:
            try:
                with limit(f"{action} of {self.identity}", min(patience_s, self._timeout_s)):
                    call()
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                message = f"{action} of {self.identity}: {problem}"
                if problem.retriable() and time.monotonic() < deadline:
                    if not is_reported:
                        _log.warning("%s; retrying", message)
                    is_reported = True
                    continue
                if problem.code() in _LASTING:
                    raise Fatal(
                        f"{message}. Check the rights and limits of the topics {self._options.output_topic} and "
                        f"{self._options.changelog_topic}, of the transactional id and of the group "
                        f"{self._options.group}."
                    ) from error
                replace = problem.fatal() or problem.code() in _FENCED or not problem.txn_requires_abort()
                raise Redo(message, replace=replace) from error
            else:
                return
