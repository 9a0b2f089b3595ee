"""From a task's configuration to everything its run needs: parsed options, converters, transforms, client settings."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from connectors.api import SourceConnector
from connectors.errors import ConfigInvalid
from offsets.creation import CreationGroup, TopicCreator, creation_groups
from worker.host.delivery.fast_path import wire_of
from worker.host.delivery.routes import ProducerSettings
from worker.host.options import CONNECTOR, WORKER
from worker.host.questions.written import KafkaReader
from worker.host.saved import ConnectorOffsets, OffsetReads, OffsetWriter
from worker.host.task_metrics import Metrics
from worker.kafka import clients as kafka_clients
from worker.logs import connector_logger
from worker.metrics.topics import TOPICS
from worker.transforms.pipeline import TransformPipeline, build_pipeline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from connectors.api import OffsetReader, SourceTask, TaskMetrics, WrittenTopics
    from connectors.options import Config, ConfigDef
    from connectors.wire import Wire
    from worker.converters.base import Converter, HeaderConverter
    from worker.host.delivery.fast_path import TaskWire
    from worker.host.delivery.shared_clients import ClientPool
    from worker.host.tracing import Tracing
    from worker.plugins.registry import PluginRegistry
    from worker.protocol import HostTaskId

#: Kafka's default for ``transaction.max.timeout.ms``: a longer timeout would be refused.
_LONGEST_TRANSACTION_MS: Final = 900_000
#: What the runtime's own Kafka clients of a connector are set up with.
_CLIENTS: Final = ("producer.override.", "admin.override.")
_DEFAULT_HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Context:
    """The ``TaskContext`` of a task."""

    connector: str
    task: int
    config: Config
    offsets: OffsetReader
    metrics: TaskMetrics
    log: logging.LoggerAdapter[logging.Logger]
    transaction_boundary: str
    written: WrittenTopics
    wire: Wire | None


@dataclass(frozen=True, slots=True)
class Renewal:
    """The result of taking over new values.

    Attributes:
        renewed: password options of the connector that have their new values now.
        clients: whether the Kafka clients' credentials are others now.
        left: what only a restart of the task takes over.
    """

    renewed: tuple[str, ...]
    clients: bool
    left: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class TaskPlan:
    """The settings of one run of a task; created for each run, so that rotated secrets take effect.

    Attributes:
        version: of the connector.
        worker: the worker's properties, resolved.
        options: the runtime's options of the connector (``worker.host.options.CONNECTOR``).
        producer: settings of the task's producer.
        admin: aiokafka client arguments to create topics with.
        own_offsets_topic: the connector's own offsets topic, or None.
        offsets_topic: the worker's.
        boundary: ``""`` unless exactly once is on; then ``poll``, ``interval`` or ``connector``.
        stop_s: seconds that the source may take to release resources.
        client_pool: gives the task's producer its client.
        topic_used: called with each topic when the task first writes to it.
        turn: awaited before what holds up the event loop while a task starts; see ``Turnstile``.
        lease: awaited before an older producer of the task is fenced; see ``Lease``.
        renew: takes new values that config providers gave, with the configuration, resolved again, and the names of the options
            that changed (both may be empty where only the worker's own properties have). Reads TLS stores: blocks for a moment.
        refresh_secrets: asks the config providers for new values now, and says whether there were any; None where the task has
            nothing of theirs.
        scrub: removes secrets from a string.
        tracing: traces batches; None: nothing does.
        wire: takes bytes instead of records from the task; None: only records will do.
    """

    id: HostTaskId
    version: str
    worker: Mapping[str, str]
    options: Config
    log: logging.LoggerAdapter[logging.Logger]
    producer: ProducerSettings
    admin: dict[str, Any]
    own_offsets_topic: str | None
    offsets_topic: str
    offsets: ConnectorOffsets
    offset_writer: OffsetWriter
    client_pool: ClientPool
    pipeline: TransformPipeline
    key_converter: Converter
    value_converter: Converter
    header_converter: HeaderConverter
    topics: TopicCreator
    dead_letter_topics: TopicCreator
    make_task: Callable[[], SourceTask]
    metrics: Metrics
    boundary: str
    flush_interval_s: float
    transaction_interval_s: float
    stop_s: float
    topic_used: Callable[[str], None]
    turn: Callable[[], Awaitable[None]]
    lease: Callable[[], Awaitable[None]]
    warnings: list[str]
    renew: Callable[[Mapping[str, str], frozenset[str]], Renewal]
    refresh_secrets: Callable[[], Awaitable[bool]] | None = None
    scrub: Callable[[str], str] = str
    tracing: Tracing | None = None
    wire: TaskWire | None = None
    active_topics: set[str] = field(default_factory=set)

    async def ensure_dead_letter_topic(self) -> None:
        """Create the dead letter topic unless it exists; immediate when it was done before."""
        await self.dead_letter_topics.ensure(self.options["errors.deadletterqueue.topic.name"])


def exactly_once(worker: Mapping[str, str]) -> bool:
    """Whether the worker has ``exactly.once.source.support=enabled``."""
    return worker.get("exactly.once.source.support", "disabled").strip().lower() == "enabled"


def check_exactly_once(cls: type[SourceConnector], config: Config, options: Config, worker: Mapping[str, str]) -> None:
    """Refuse what can't be exactly once though it has to be, and boundaries the connector can't draw.

    Raises:
        ConfigInvalid: says why.
    """
    required = options["exactly.once.support"].lower() == "required"
    if required and not exactly_once(worker):
        raise ConfigInvalid(
            "exactly.once.support is required, but this worker does not have exactly.once.source.support=enabled"
        )
    if required and not cls.exactly_once_support(config):
        raise ConfigInvalid(
            "exactly.once.support is required, but the connector does not guarantee exactly once with this "
            "configuration; set it to requested to run it at least once"
        )
    if (
        exactly_once(worker)
        and options["transaction.boundary"].lower() == "connector"
        and not cls.can_define_transaction_boundaries(config)
    ):
        raise ConfigInvalid(
            "transaction.boundary is connector, but this connector can't define transaction boundaries with "
            "this configuration; use poll or interval"
        )


def producer_settings(
    worker: Mapping[str, str],
    connector: Mapping[str, str],
    client_id: str,
    *,
    transactional_id: str | None = None,
    transaction_timeout_ms: int = 60_000,
) -> tuple[ProducerSettings, list[str]]:
    """Settings of a task's producer from ``producer.*`` and ``producer.override.*``, and warnings about them.

    Raises:
        ConfigInvalid: a property has a wrong value, or may not be overridden.
    """
    overridden = kafka_clients.override_properties(connector, "producer.override.", worker)
    properties = kafka_clients.inherited_properties(worker, "producer.") | overridden
    if transactional_id is not None:
        properties["transactional.id"] = transactional_id
        properties["enable.idempotence"] = "true"
        properties["acks"] = "all"
        properties.setdefault("transaction.timeout.ms", str(transaction_timeout_ms))
    else:
        properties.pop("transactional.id", None)
    connection = frozenset(item for item in properties.items() if "admin" in kafka_clients.client_kinds(item[0]))
    properties.setdefault("client.id", client_id)
    mapped = kafka_clients.client_arguments(properties, "producer")
    arguments = mapped.arguments
    if arguments.get("acks", "all") != "all":
        # As in the Java client: idempotence is off automatically with fewer acks, and an error if it is requested.
        if arguments.get("enable_idempotence"):
            raise ConfigInvalid("Must set acks to all in order to use the idempotent producer")
        arguments["enable_idempotence"] = False
    limits = WORKER.parse(worker)
    memory = properties.get("buffer.memory")
    return ProducerSettings(
        arguments,
        limits["task.max.outstanding.records"],
        int(memory) if memory is not None and memory.strip().isdigit() else limits["task.max.outstanding.bytes"],
        limits["task.producer.stall.ms"] / 1000,
        connection,
    ), mapped.warnings


def converter_config(
    connector: Mapping[str, str], worker: Mapping[str, str], option: str
) -> tuple[str, dict[str, str]]:
    """Class name and own properties of a converter (``key.converter`` ...): the connector's, else the worker's."""
    source = connector if connector.get(option) else worker
    name = source.get(option) or (_DEFAULT_HEADER_CONVERTER if option == "header.converter" else None)
    if name is None:
        raise ConfigInvalid(f'Missing required configuration "{option}" which has no default value.')
    prefix = option + "."
    return name.strip(), {key[len(prefix) :]: value for key, value in source.items() if key.startswith(prefix)}


def _shared_overrides(merged: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """Return the connector's producer overrides that its other clients need as well: addresses, security."""
    overrides = kafka_clients.override_properties(merged, "producer.override.", worker)
    return {name: value for name, value in overrides.items() if "admin" in kafka_clients.client_kinds(name)}


def admin_client(merged: Mapping[str, str], worker: Mapping[str, str]) -> kafka_clients.ClientArguments:
    """Arguments of the client that makes a connector's topics and reads its own offsets topic.

    Raises:
        ConfigInvalid: a property is wrong, or may not be overridden.
    """
    overrides = kafka_clients.override_properties(merged, "admin.override.", worker)
    return kafka_clients.client_arguments(
        kafka_clients.inherited_properties(worker, "admin.") | _shared_overrides(merged, worker) | overrides, "admin"
    )


def consumer_arguments(merged: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of a consumer of the cluster that a connector writes to.

    Raises:
        ConfigInvalid: a property is wrong, or may not be overridden.
    """
    overrides = {
        key: value
        for key, value in _shared_overrides(merged, worker).items()
        if "consumer" in kafka_clients.client_kinds(key)
    }
    return kafka_clients.client_arguments(
        kafka_clients.inherited_properties(worker, "consumer.") | overrides, "consumer"
    ).arguments


def reader_of(merged: Mapping[str, str], worker: Mapping[str, str], plugins: PluginRegistry) -> KafkaReader:
    """Reads back what a connector has written; ``merged`` are its properties as they are when something is read.

    Raises:
        ConfigInvalid: a property is wrong.
    """
    name, config = converter_config(merged, worker, "value.converter")

    def client() -> dict[str, Any]:
        return consumer_arguments(merged, worker)

    return KafkaReader(client, lambda: plugins.converter(name, config.get("plugin.version"))(config, is_key=False))


def own_offsets_topic(
    merged: Mapping[str, str], options: Config, worker: Mapping[str, str], boundary: str
) -> str | None:
    """Return the offsets topic that a connector has in addition to the worker's, or None.

    Raises:
        ConfigInvalid: a property may not be overridden.
    """
    topic: str | None = options["offsets.storage.topic"] or None
    here = worker.get("bootstrap.servers")
    elsewhere = _shared_overrides(merged, worker).get("bootstrap.servers", here) != here
    if topic == worker.get("offset.storage.topic") and not elsewhere:
        topic = None
    if topic is None and boundary and elsewhere:
        # A transaction can't span two Kafka clusters: offsets are kept with the records, in a topic of the same name as here.
        topic = worker.get("offset.storage.topic")
    return topic


@dataclass(frozen=True, slots=True)
class HostServices:
    """The parts of a host that all of its tasks share.

    Attributes:
        worker: the worker's properties, resolved.
        plugins: finds classes by their names.
        offset_reads: reads what is saved.
        offset_writer: writes to the worker's offsets topic.
        client_pool: gives tasks' producers their clients.
        turn: see ``TaskPlan``.
        lease: see ``TaskPlan``.
    """

    worker: Mapping[str, str]
    plugins: PluginRegistry
    offset_reads: OffsetReads
    offset_writer: OffsetWriter
    client_pool: ClientPool
    turn: Callable[[], Awaitable[None]]
    lease: Callable[[], Awaitable[None]]


class _TaskClients:
    """The settings of a task's Kafka clients, and its configuration, which takes new values of config providers over.

    Raises:
        ConfigInvalid: a property is wrong, or may not be overridden.
    """

    def __init__(
        self, task: HostTaskId, merged: Mapping[str, str], worker: Mapping[str, str], options: Config, boundary: str
    ) -> None:
        self._task = task
        self._worker = worker
        self._boundary = boundary
        self.properties = dict(merged)
        interval_ms = int(worker.get("offset.flush.interval.ms", "60000"))
        self.flush_ms = interval_ms
        self.transaction_ms: int = options["transaction.boundary.interval.ms"] or interval_ms
        self.producer, warnings = self._producer_settings()
        self.admin = admin_client(merged, worker)
        self.warnings = warnings + self.admin.warnings

    def _producer_settings(self) -> tuple[ProducerSettings, list[str]]:
        timeout_ms = {"interval": max(60_000, 2 * self.transaction_ms), "connector": _LONGEST_TRANSACTION_MS}.get(
            self._boundary, 60_000
        )
        return producer_settings(
            self._worker,
            self.properties,
            f"connector-producer-{self._task}",
            transactional_id=f"{self._worker.get('group.id', '')}-{self._task}" if self._boundary else None,
            transaction_timeout_ms=min(timeout_ms, _LONGEST_TRANSACTION_MS),
        )

    def renew(self, definition: ConfigDef, config: Config, newer: Mapping[str, str], names: frozenset[str]) -> Renewal:
        """Take new values over; see ``TaskPlan``.

        Args:
            definition: of the connector's options.
            config: the connector's options, which get the new passwords.
            newer: the configuration, resolved again.
            names: the options that changed.
        """
        self.properties.update({name: newer[name] for name in names})
        clients = (
            (self.producer.arguments, self._producer_settings()[0].arguments),
            (self.admin.arguments, admin_client(self.properties, self._worker).arguments),
        )
        changed = not names or any(
            old.get(name) != new.get(name)
            for old, new in clients
            for name in ("sasl_plain_username", "sasl_plain_password")
        )
        for old, new in clients:
            old.update({name: new[name] for name in kafka_clients.CREDENTIALS if name in new})
        keys_by_name = {alias: key for key in definition.keys.values() for alias in (key.name, *key.aliases)}
        own_names = [
            keys_by_name[name].name for name in sorted(names) if name in keys_by_name and keys_by_name[name].secret
        ]
        if own_names:
            config.renew(definition.parse(self.properties), own_names)
        return Renewal(
            tuple(own_names),
            changed,
            tuple(
                name
                for name in sorted(names)
                if not (name in keys_by_name and keys_by_name[name].secret) and not name.startswith(_CLIENTS)
            ),
        )


def _find_converters(merged: Mapping[str, str], host: HostServices) -> tuple[Converter, Converter, HeaderConverter]:
    """Make the converters of keys, values and headers."""
    plugins = host.plugins
    key_name, key_config = converter_config(merged, host.worker, "key.converter")
    value_name, value_config = converter_config(merged, host.worker, "value.converter")
    header_name, header_config = converter_config(merged, host.worker, "header.converter")
    return (
        plugins.converter(key_name, key_config.get("plugin.version"))(key_config, is_key=True),
        plugins.converter(value_name, value_config.get("plugin.version"))(value_config, is_key=False),
        plugins.header_converter(header_name, header_config.get("plugin.version"))(header_config),
    )


def make_plan(
    task: HostTaskId, merged: Mapping[str, str], host: HostServices, topic_used: Callable[[str], None]
) -> TaskPlan:
    """Build the settings and the parts of one run of a task.

    Args:
        task: the id of the task.
        merged: the connector's and the task's properties, references resolved.
        host: what the task shares with others.
        topic_used: see ``TaskPlan``.

    Raises:
        ConfigInvalid: a property is wrong; the message names it.
    """
    worker = host.worker
    cls = host.plugins.configured_class(merged)
    if not issubclass(cls, SourceConnector):
        raise ConfigInvalid(f"{cls.__name__} is no source connector")
    options = CONNECTOR.parse(merged)
    config = cls.config_def.parse(merged)
    check_exactly_once(cls, config, options, worker)
    boundary = options["transaction.boundary"].lower() if exactly_once(worker) else ""
    clients = _TaskClients(task, merged, worker, options, boundary)
    admin = clients.admin.arguments
    own_topic = own_offsets_topic(merged, options, worker, boundary)
    key_converter, value_converter, header_converter = _find_converters(merged, host)
    offsets = ConnectorOffsets(task.connector, host.offset_reads, own_topic, admin)
    adapter = connector_logger(f"{cls.__module__}.{cls.__qualname__}", task.connector, f"task-{task.task}")
    metrics = Metrics({**cls.metrics, **TOPICS}, WORKER.parse(worker)["metrics.tables.max"], adapter)
    pipeline = build_pipeline(merged)
    wire = wire_of(options["fast.path"].lower(), pipeline, key_converter, value_converter, header_converter)
    context = Context(
        task.connector,
        task.task,
        config,
        offsets,
        metrics,
        adapter,
        boundary,
        reader_of(clients.properties, worker, host.plugins),
        wire,
    )
    dead_letters = CreationGroup(
        "default", (re.compile(".*", re.DOTALL),), (), 1, options["errors.deadletterqueue.topic.replication.factor"], {}
    )
    return TaskPlan(
        id=task,
        version=cls.version,
        worker=worker,
        options=options,
        log=adapter,
        producer=clients.producer,
        admin=admin,
        own_offsets_topic=own_topic,
        offsets_topic=worker.get("offset.storage.topic", ""),
        offsets=offsets,
        offset_writer=host.offset_writer,
        client_pool=host.client_pool,
        pipeline=pipeline,
        key_converter=key_converter,
        value_converter=value_converter,
        header_converter=header_converter,
        wire=wire,
        topics=TopicCreator(
            admin,
            creation_groups(merged),
            enabled=worker.get("topic.creation.enable", "true").strip().lower() == "true",
        ),
        dead_letter_topics=TopicCreator(admin, (dead_letters,)),
        make_task=lambda: cls.task_class(context),
        metrics=metrics,
        boundary=boundary,
        flush_interval_s=clients.flush_ms / 1000,
        transaction_interval_s=clients.transaction_ms / 1000,
        stop_s=int(worker.get("task.shutdown.graceful.timeout.ms", "5000")) / 1000,
        topic_used=topic_used,
        turn=host.turn,
        lease=host.lease,
        warnings=clients.warnings,
        renew=partial(clients.renew, cls.config_def, config),
    )
