"""Which sinks and sources there are: type name in a job file -> module and class, imported only when a job asks for it."""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spark_jobs.contract import Sink, Source

#: ``sink.type`` -> module:class.
SINKS: Final = {
    "console": "spark_jobs.sinks.console.sink:ConsoleSink",
    "files": "spark_jobs.sinks.files.sink:FilesSink",
    "jdbc": "spark_jobs.sinks.jdbc.sink:JdbcSink",
    "kafka": "spark_jobs.sinks.kafka.sink:KafkaSink",
}
#: With ``transform.type=materialize`` the whole batch goes here, whatever ``sink.type`` (which must be kafka) says.
MATERIALIZER: Final = "spark_jobs.materializer.job:MaterializerSink"
#: ``source.format`` -> module:class.
SOURCES: Final = {
    "debezium": "spark_jobs.sources.debezium:DebeziumSource",
    "ums": "spark_jobs.sources.ums:UmsSource",
    "plain": "spark_jobs.sources.plain:PlainSource",
    "partition-update": "spark_jobs.sources.updates:PartitionUpdateSource",
}


def load(where: str) -> Any:
    """The class that ``module:class`` names.

    Raises:
        ImportError: the module can't be imported.
        AttributeError: it has no such class.
    """
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def sink_class(name: str) -> type[Sink]:
    """The class of ``sink.type``: a name of ``SINKS``, or ``module:Class`` of one of a user's own.

    Raises:
        KeyError: an unknown name.
        ImportError, AttributeError: as ``load``.
    """
    found: type[Sink] = load(name if ":" in name else SINKS[name])
    return found


def source_class(name: str) -> type[Source]:
    """The class of ``source.format``, as ``sink_class``."""
    found: type[Source] = load(name if ":" in name else SOURCES[name])
    return found
