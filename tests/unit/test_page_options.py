"""Options that the text of a page names with a value exist and take that value."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final

from connectors.options import given_value
from spark_jobs import registry as jobs
from spark_jobs.config.keys import FRAME
from worker.config.job_config import JOB_CONFIG
from worker.config.source_config import SOURCE_CONFIG
from worker.config.worker_keys import WORKER_CONFIG
from worker.development.commands import ROOT
from worker.plugins import PluginRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connectors.options import ConfigDef, ConfigKey

_FENCED: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_ASSIGNMENT: Final = re.compile(r"`([a-z]\w*(?:\.\w+)+)=([^`]+)`")
_CONVERTER: Final = re.compile(r"^(?:key|value|header)\.converter\.")
#: What is passed on to another system as it is, and the options of a sink with the name `database`.
_PASSED_ON: Final = (
    "sink.database.",
    "sink.iceberg.catalog.",
    "sink.kafka.schema.registry.",
    "sink.kafka.topic.config.",
    "topic.creation.default.",
)
#: Options of Kafka and of Flume, and a field of an event.
_FOREIGN: Final = {
    "auto.create.topics.enable",
    "cleanup.policy",
    "compression.type",
    "isolation.level",
    "message.timestamp.type",
    "queue.dequeueBatchSize",
    "retention.ms",
    "source.snapshot",
}
#: In place of a value.
_ANY_VALUE: Final = {"...", "N"}


def _definitions() -> Iterator[ConfigDef]:
    registry = PluginRegistry("")
    yield from (WORKER_CONFIG, SOURCE_CONFIG, JOB_CONFIG, FRAME, jobs.load_class(jobs.MATERIALIZER).config_def)
    yield from (kind.config_def for kind in registry.builtin_connectors().values() if hasattr(kind, "config_def"))
    entry_points = [jobs.list_entry_points(group) for group in (jobs.SOURCES, jobs.SINKS, jobs.STEPS)]
    for where in chain.from_iterable(group.values() for group in (jobs.INPUT_SOURCES, *entry_points)):
        yield jobs.load_class(where).config_def
    for _, definition in chain(registry.converter_definitions().values(), registry.transform_definitions().values()):
        yield definition


def _collect_keys() -> dict[str, list[ConfigKey]]:
    """The options by name; where a page leaves a prefix out, by what follows it."""
    keys: dict[str, list[ConfigKey]] = defaultdict(list)
    for definition in _definitions():
        for key in definition.keys.values():
            for name in (key.name, *key.aliases):
                parts = name.split(".")
                for start in range(len(parts) - 1):
                    keys[".".join(parts[start:])].append(key)
    return keys


def _read_assignments() -> Iterator[tuple[Path, str, str]]:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        if "reference" not in page.relative_to(ROOT).parts:
            text = _FENCED.sub("", page.read_text(encoding="utf-8"))
            for name, value in _ASSIGNMENT.findall(text):
                yield page, _CONVERTER.sub("", name), " ".join(value.split())


def test_options_with_values_in_texts_are_valid() -> None:
    keys = _collect_keys()
    wrong = []
    assignments = list(_read_assignments())
    for page, name, value in assignments:
        if name in _FOREIGN or name.startswith(_PASSED_ON):
            continue
        complaints = [given_value(dataclasses.replace(key, name=name), {name: value})[1] for key in keys[name]]
        if not complaints or (value not in _ANY_VALUE and all(complaints)):
            wrong.append((page.name, name, value, complaints[:1]))
    assert len(assignments) > 250
    assert wrong == []
