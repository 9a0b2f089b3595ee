"""Where a connector's data come from and go to, by its configuration and the topics that it uses. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from worker.secrets.masking import mask_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Topics of a connector that are named; of the others there is the number.
MOST_TOPICS: Final = 12
_LONGEST: Final = 200
#: What says where a source reads, in the order of weight.
_SOURCES: Final = (
    "database.hostname",
    "scylla.cluster.ip.addresses",
    "cassandra.hosts",
    "files",
    "file",
    "input",
    "connection.url",
)
#: What says where a sink writes, below ``sink.`` or ``sink.TYPE.``.
_TARGETS: Final = ("url", "hosts", "address", "path", "table", "topic")
_OTHER_TARGETS: Final = ("connection.url", "connection.uri", "file", "hosts", "url")
_SPARK: Final = ("SparkJob", "spark_jobs.SparkJob")


def describe_endpoints(name: str, config: Mapping[str, str], kind: str, used: Iterable[str]) -> dict[str, Any]:
    """A connector in the pipeline: what it reads, and what it writes.

    Args:
        name: its name.
        config: its configuration; values of secrets are left out.
        kind: source, sink or unknown.
        used: the topics that it has written to, or read.
    """
    shown = mask_config(config, [])
    klass = config.get("connector.class", "")
    topics = sorted(used)
    if klass in _SPARK or "sink.type" in config or "sinks" in config:
        reads = _split_items(config.get("source.topics", "")) or _split_items(config.get("source.topics.pattern", ""))
        targets = [_find_target(shown, prefix) for prefix in _sink_prefixes(config)]
        writes = [target[0] for target in targets if target[0]]
        into = [target[1] for target in targets if target[1]]
        origin = None if reads else _first_value(shown, ("source.path", "source.files.path"), "files")
        return _describe_connector(name, "flow", origin, reads, writes, into)
    if kind == "sink":
        reads = _split_items(config.get("topics", "")) or topics or _split_items(config.get("topics.regex", ""))
        return _describe_connector(
            name, "sink", None, reads, [], [_first_value(shown, _OTHER_TARGETS, _short_class(klass))]
        )
    return _describe_connector(name, "source", _describe_origin(shown, _short_class(klass)), [], topics, [])


def _describe_connector(
    name: str, kind: str, origin: str | None, reads: list[str], writes: list[str], into: list[str]
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "source": origin,
        "reads": reads[:MOST_TOPICS],
        "reads_more": max(0, len(reads) - MOST_TOPICS),
        "writes": writes[:MOST_TOPICS],
        "writes_more": max(0, len(writes) - MOST_TOPICS),
        "targets": into,
    }


def _describe_origin(config: Mapping[str, str], otherwise: str) -> str:
    address = _first_value(config, _SOURCES, otherwise)
    port = config.get("database.port")
    return f"{address}:{port}" if port and address == config.get("database.hostname") else address


def _sink_prefixes(config: Mapping[str, str]) -> list[str]:
    return [f"sink.{name}." for name in _split_items(config.get("sinks", ""))] or ["sink."]


def _find_target(config: Mapping[str, str], prefix: str) -> tuple[str | None, str | None]:
    """The topic that a flow's sink writes, or else its target."""
    kind = config.get(f"{prefix}type", "")
    names = [f"{prefix}{kind}.{name}" for name in _TARGETS]
    if kind == "kafka":
        return config.get(f"{prefix}kafka.topic") or "topics of the flow", None
    address = _first_value(config, names, "")
    return None, (address if "://" in address else f"{kind} {address}".strip()) or "a sink"


def _first_value(config: Mapping[str, str], names: Iterable[str], otherwise: str) -> str:
    for name in names:
        value = (config.get(name) or "").strip()
        if value:
            return _plain_address(value)
    return otherwise


def _plain_address(address: str) -> str:
    """An address without user, password and parameters, which may be secrets."""
    head, separator, address_part = re.split(r"[;?]", address, maxsplit=1)[0].rpartition("://")
    return f"{head}{separator}{address_part.rpartition('@')[2]}"[:_LONGEST]


def _short_class(klass: str) -> str:
    return klass.rpartition(".")[2] or "?"


def _split_items(raw: str) -> list[str]:
    return [item.strip() for item in raw.split(",") if item.strip()]
