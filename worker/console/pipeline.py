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


def endpoints(name: str, config: Mapping[str, str], kind: str, used: Iterable[str]) -> dict[str, Any]:
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
        reads = _items(config.get("source.topics", "")) or _items(config.get("source.topics.pattern", ""))
        targets = [_target(shown, prefix) for prefix in _sink_prefixes(config)]
        writes = [target[0] for target in targets if target[0]]
        into = [target[1] for target in targets if target[1]]
        origin = None if reads else _first(shown, ("source.path", "source.files.path"), "files")
        return _shown(name, "flow", origin, reads, writes, into)
    if kind == "sink":
        reads = _items(config.get("topics", "")) or topics or _items(config.get("topics.regex", ""))
        return _shown(name, "sink", None, reads, [], [_first(shown, _OTHER_TARGETS, _short(klass))])
    return _shown(name, "source", _origin(shown, _short(klass)), [], topics, [])


def _shown(
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


def _origin(config: Mapping[str, str], otherwise: str) -> str:
    address = _first(config, _SOURCES, otherwise)
    port = config.get("database.port")
    return f"{address}:{port}" if port and address == config.get("database.hostname") else address


def _sink_prefixes(config: Mapping[str, str]) -> list[str]:
    return [f"sink.{name}." for name in _items(config.get("sinks", ""))] or ["sink."]


def _target(config: Mapping[str, str], prefix: str) -> tuple[str | None, str | None]:
    """The topic that a flow's sink writes, or else its target."""
    kind = config.get(f"{prefix}type", "")
    names = [f"{prefix}{kind}.{name}" for name in _TARGETS]
    if kind == "kafka":
        return config.get(f"{prefix}kafka.topic") or "topics of the flow", None
    address = _first(config, names, "")
    return None, (address if "://" in address else f"{kind} {address}".strip()) or "a sink"


def _first(config: Mapping[str, str], names: Iterable[str], otherwise: str) -> str:
    for name in names:
        value = (config.get(name) or "").strip()
        if value:
            return _plain(value)
    return otherwise


def _plain(address: str) -> str:
    """An address without user, password and parameters, which may be secrets."""
    head, separator, rest = re.split(r"[;?]", address, maxsplit=1)[0].rpartition("://")
    return f"{head}{separator}{rest.rpartition('@')[2]}"[:_LONGEST]


def _short(klass: str) -> str:
    return klass.rpartition(".")[2] or "?"


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
