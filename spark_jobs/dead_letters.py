"""Records that can't be decoded: they stop the job with their position, or go to a dead letter topic and are counted.

Used inside Python tasks, on executors as well as on the driver; the header names are Kafka Connect's (KIP-298).
"""

from __future__ import annotations

import copy
import logging
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from connectors.errors import Fatal, Retriable
from connectors.formats.masks.masking import hide_reason, rule_names
from spark_jobs.kafka.topics import create_topic
from spark_jobs.rows.misfit import ColumnMisfit
from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from confluent_kafka import KafkaException

    from connectors.options import Config
    from spark_jobs.contract import JobContext

_log = logging.getLogger(__name__)
_FLUSH_S: Final = 60.0
#: Records handed to the client before their delivery is waited for, at most.
_PENDING: Final = 1000
#: Parts of errors that are put in headers, in characters.
_MESSAGE: Final = 2000
#: The client's own limit, at its most: what came from a topic is to fit into another, and the broker knows what does.
_LARGEST: Final = 1_000_000_000
_TRACE: Final = 8000
#: The stage of a sink: its rows are masked already.
_WRITING: Final = "TASK_PUT"


class _Resident:
    """The producers that a Spark Python worker keeps from task to task, one per Kafka.

    One process serves many tasks of many batches, and a connection costs more than a task; Spark gives a task no other place
    to keep it. Everything else is in the task's own objects.
    """

    def __init__(self) -> None:
        self.producers: dict[str, Any] = {}

    def producer(self, config: dict[str, Any]) -> Any:
        from confluent_kafka import Producer

        key = repr(sorted(config.items()))
        if key not in self.producers:
            quiet = logging.getLogger("spark_jobs.kafka_client")
            quiet.setLevel(logging.ERROR)
            self.producers[key] = Producer(config, logger=quiet)
        return self.producers[key]

    def drop(self, config: dict[str, Any]) -> None:
        """Give a producer up: after some errors it would refuse every further record."""
        self.producers.pop(repr(sorted(config.items())), None)


_RESIDENT: Final = _Resident()


class DeadLetters:
    """The handling of bad records in one job. Picklable: closures of tasks may hold it.

    ``report`` waits until the record is in the dead letter topic; inside ``with letters:`` deliveries are awaited together,
    at the end of the block at the latest: use that around a task's loop.

    Args:
        job: the job's name.
        tolerant: put bad records aside instead of stopping.
        topic: where to; empty: they are only counted and logged.
        client: confluent-kafka's configuration of a producer.
        headers: whether position and cause go along as headers.
        counter: Spark's accumulator of the records put aside, which tasks add to; None: no count.
        masked: whether the job masks columns: then nothing is shown of a record that could not be decoded, and so not masked.
    """

    def __init__(
        self,
        job: str,
        *,
        tolerant: bool,
        topic: str = "",
        client: dict[str, Any] | None = None,
        headers: bool = True,
        counter: Any = None,
        masked: bool = False,
    ) -> None:
        self.job = job
        self.tolerant = tolerant
        self.topic = topic
        self.counter = counter
        self._client = client or {}
        self._headers = headers
        self._masked = masked
        self._together = 0
        self._pending = 0
        self._failures: list[str] = []

    @classmethod
    def of(cls, context: JobContext) -> DeadLetters:
        """Those of a running job, with a counter that the job's metrics show (``millrace_job_dead_letters_total``)."""
        if context.dead_letters is None:
            context.dead_letters = cls.from_config(
                context.name, context.config, context.spark.sparkContext.accumulator(0)
            )
        letters: DeadLetters = context.dead_letters
        return letters

    @classmethod
    def from_config(cls, job: str, config: Config, counter: Any = None) -> Self:
        """As the ``errors.*`` options say."""
        from spark_jobs.kafka import clients

        return cls(
            job,
            tolerant=config["errors.tolerance"] == "all",
            topic=config["errors.deadletterqueue.topic.name"] or "",
            client=clients.build_client_config(
                config, enable_idempotence=True, linger_ms=5, message_max_bytes=_LARGEST
            ),
            headers=config["errors.deadletterqueue.context.headers.enable"],
            counter=counter,
            masked=bool(rule_names(config.raw)),
        )

    def report(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        error: BaseException | str,
        *,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        stage: str = "VALUE_CONVERTER",
    ) -> None:
        """Take note of one bad record. Blocks as the class says.

        Raises:
            Fatal: bad records are not tolerated, or the dead letter topic refuses this one.
            Retriable: Kafka does not take the dead letter; nothing was skipped.
        """
        if self._masked and stage != _WRITING:
            key = value = headers = None
        error = self.shown(error, stage)
        if not self.tolerant:
            raise Fatal(
                f"the record at {self.where(topic, partition, offset)} can't be decoded: {error}. Correct the "
                "source's options (source.format, source.value.encoding ...), or set errors.tolerance=all to "
                "put such records aside (errors.deadletterqueue.topic.name)"
            )
        if not self.topic:
            _log.error("put aside: %s: %s", self.where(topic, partition, offset), error)
        else:
            self._produce_letter(topic, partition, offset, key, value, error, headers, stage)
        if self.counter is not None:
            self.counter.add(1)

    def shown(self, error: BaseException | str, stage: str) -> BaseException | str:
        """The error as it may be shown: without values of a job with masks, if the record was not decoded. Pure."""
        if not self._masked or stage == _WRITING:
            return error
        return error.hidden if isinstance(error, ColumnMisfit) else hide_reason(error)

    def where(self, topic: str, partition: int, offset: int) -> str:
        """The position of a record as text."""
        return f"{topic}-{partition} offset {offset}"

    def __enter__(self) -> Self:
        self._together += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._together -= 1
        if kind is None and self._pending:
            self.flush()

    def flush(self) -> None:
        """Wait until all dead letters are delivered; raises as ``report``."""
        if not self.topic:
            return
        from confluent_kafka import KafkaException

        try:
            with limit(f"flush of the dead letter topic {self.topic}", _FLUSH_S):
                left = _RESIDENT.producer(self._client).flush(_FLUSH_S)
        except KafkaException as error:
            raise self._mark_broken(error) from error
        self._pending = 0
        if self._failures:
            failure = self._failures[0]
            self._failures.clear()
            raise Fatal(
                f"the dead letter topic {self.topic} does not take the bad record at {failure}. Correct the topic "
                "(max.message.bytes, the job's right to write), or leave errors.deadletterqueue.topic.name empty: bad "
                "records are only counted and logged then"
            )
        if left:
            raise Retriable(
                f"{left} bad records could not be written to the dead letter topic {self.topic} within {_FLUSH_S:.0f} s"
            )

    def _produce_letter(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        error: BaseException | str,
        headers: Sequence[tuple[str, bytes | None]] | None,
        stage: str,
    ) -> None:
        from confluent_kafka import KafkaException

        all_headers = [*(headers or ()), *self.story(topic, partition, offset, error, stage)]
        producer = _RESIDENT.producer(self._client)
        deadline = time.monotonic() + _FLUSH_S
        delivered = partial(self._note_delivery, self.where(topic, partition, offset))
        try:
            while True:
                try:
                    producer.produce(self.topic, key=key, value=value, headers=all_headers, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
                    if time.monotonic() > deadline:
                        raise Retriable(f"the dead letter topic {self.topic} takes no records") from None
            producer.poll(0)
        except KafkaException as trouble:
            raise self._mark_broken(trouble) from trouble
        self._pending += 1
        if not self._together or self._pending >= _PENDING:
            self.flush()

    def _note_delivery(self, where: str, error: Any, message: Any) -> None:
        del message
        if error is not None:
            self._failures.append(f"{where}: {error.str()}")

    def _mark_broken(self, error: KafkaException) -> Retriable:
        """The producer can't be used any more: the batch is retried, by another one."""
        _RESIDENT.drop(self._client)
        self._pending = 0
        self._failures.clear()
        return Retriable(
            f"bad records could not be written to the dead letter topic {self.topic}: {error.args[0].str()}"
        )

    def story(
        self, topic: str, partition: int, offset: int, error: BaseException | str, stage: str
    ) -> list[tuple[str, bytes | None]]:
        """The headers that say where a record stood and what is wrong (Connect's names); none where they are turned off."""
        if not self._headers:
            return []
        name, trace = "", ""
        if isinstance(error, BaseException):
            name = f"{type(error).__module__}.{type(error).__qualname__}"
            trace = "".join(traceback.format_exception(error))[-_TRACE:]
        fields = {
            "topic": topic,
            "partition": str(partition),
            "offset": str(offset),
            "connector.name": self.job,
            "task.id": str(partition),
            "stage": stage,
            "class.name": "spark_jobs",
            "exception.class.name": name,
            "exception.message": str(error)[:_MESSAGE],
            "exception.stacktrace": trace,
        }
        return [(f"__connect.errors.{field}", value.encode("utf-8", "replace")) for field, value in fields.items()]

    def uncounted(self) -> Self:
        """The same without the counter: for callers that count by themselves."""
        letters = copy.copy(self)
        letters.counter = None
        return letters

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that goes to a task, without deliveries that are pending here."""
        return self.__dict__ | {"_pending": 0, "_failures": [], "_together": 0}


def prepare_topic(config: Config, admin: Any) -> None:
    """Make the dead letter topic if the job names one that is not there. Blocks.

    Raises:
        Fatal: it can't be made.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # it is there, and documented

    topic = config["errors.deadletterqueue.topic.name"]
    if not topic or topic in admin.list_topics(timeout=15).topics:
        return
    factor = config["errors.deadletterqueue.topic.replication.factor"]
    try:
        create_topic(admin, NewTopic(topic, num_partitions=1, replication_factor=factor), 30)
    except KafkaException as error:
        raise Fatal(
            f"the dead letter topic {topic} can't be made: {error.args[0].str()}; make it, or give the job the right "
            "to CREATE it"
        ) from error
