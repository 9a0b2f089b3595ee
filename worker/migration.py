"""``millrace migrate-check``: what becomes of a Kafka Connect cluster's connectors when Millrace takes its topics over.

Reads the worker's properties and the cluster's config and offsets topics, writes nothing, and may be run while the Java
cluster runs. Each connector's configuration is validated as ``PUT /connector-plugins/.../config/validate`` does it, which
includes the connector's own look at its source.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaError

from connectors.errors import ConfigInvalid, MillraceError, Retriable
from connectors.job_api import JobConnector
from offsets.admin import TopicAdmin
from offsets.store import OffsetStore
from worker.config.job_config import job_form
from worker.config.validation.answers import validate_config
from worker.config.worker_config import exactly_once, parse_worker
from worker.control import clients
from worker.control.state.stores import ConfigStore
from worker.plugins.catalog import PluginCatalog
from worker.plugins.describe import describe_all
from worker.plugins.environments import scan_folders
from worker.plugins.isolation import own_distributions
from worker.plugins.providers import provider_finder
from worker.plugins.registry import PluginRegistry
from worker.properties import load_properties
from worker.secrets.masking import SecretMasker
from worker.secrets.providers import ConfigTransformer, build_providers, find_references
from worker.secrets.rotation import build_keeper
from worker.terminal import progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from offsets.cluster import ClusterSnapshot

#: Words in the simple names of Java classes of sink connectors.
_SINK: Final = "Sink"
_CLASS: Final = "connector.class"
#: How the validation begins to say that a connector's class is not known.
_NOT_FOUND: Final = "Failed to find any class that implements Connector and which name matches"


@dataclass(slots=True)
class Finding:
    """The findings about one connector.

    Attributes:
        name: the connector.
        connector_class: as it is configured.
        state: what its operator wants: STARTED, PAUSED or STOPPED.
        offsets: source partitions with a saved offset.
        problems: why it can't run here, one sentence each.
        notes: what else the operator should know.
    """

    name: str
    connector_class: str
    state: str
    offsets: int
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class MigrationReport:
    """The whole result: warnings about the worker's properties, and a finding per connector."""

    worker: list[str]
    config_topic: str
    findings: list[Finding]

    @property
    def ready(self) -> bool:
        """Whether every connector can run here."""
        return not any(finding.problems for finding in self.findings)


async def check_migration(properties: Mapping[str, str], deadline_s: float = 60.0) -> MigrationReport:
    """Look at everything. Takes as long as the connectors' own checks do.

    Args:
        properties: the worker's, as in its file.
        deadline_s: for reading each topic, and for each connector's own check.

    Raises:
        ConfigInvalid: the worker's properties can't work here, or a topic does not exist.
        Retriable: Kafka can't be reached.
        MillraceError: a topic can't be read.
    """
    masker = SecretMasker()
    providers = await asyncio.to_thread(build_providers, properties, provider_finder(properties))
    transformer = ConfigTransformer(providers, masker.add)
    resolved, _ = await transformer.transform_async(properties)
    masker.learn(resolved)
    config, warnings = parse_worker(resolved)
    client = await asyncio.to_thread(clients.reader_arguments, resolved, "millrace-migrate-check")
    snapshot, offsets = await _read_topics(
        config["config.storage.topic"], config["offset.storage.topic"], client, deadline_s
    )
    own_clients = clients.ConnectorClients(
        resolved, build_keeper(providers, masker.add, resolved), exactly_once=exactly_once(config)
    )
    registry = await asyncio.to_thread(PluginRegistry, resolved.get("plugin.path", ""))
    catalog, unusable = await plugins_of(registry, resolved.get("plugin.path", ""))
    findings = []
    for name, connector in sorted(snapshot.connectors.items()):
        finding = Finding(name, connector.get(_CLASS, ""), snapshot.target_state(name), len(offsets[name]))
        try:
            finding.offsets = len(offsets[name] | await _read_own_offsets(own_clients, name, connector, deadline_s))
        except (MillraceError, KafkaError) as error:
            finding.notes.append(
                masker.scrub(f"offsets of its own topic ({clients.OFFSETS_TOPIC}) can't be read: {error}")
            )
        selection = catalog.select(connector, resolved)
        refused = selection.problems.get(_CLASS, "")
        if refused and not refused.startswith(_NOT_FOUND):
            finding.problems.append(refused)  # it is there, but can't be used
        elif selection.environments:
            finding.problems += selection.problems.values()
            names = ", ".join(catalog.environments[key].name for key in selection.environments)
            finding.notes.append(
                f"its plugins are in {names} of plugin.path: the worker checks its options when it starts it"
            )
        else:
            await examine_connector(finding, connector, registry, transformer, masker, resolved, deadline_s)
        if name in snapshot.inconsistent:
            finding.notes.append("its task configurations are incomplete in the topic (compaction): they are recreated")
        findings.append(finding)
    return MigrationReport([*warnings, *unusable], config["config.storage.topic"], findings)


async def plugins_of(registry: PluginRegistry, plugin_path: str) -> tuple[PluginCatalog, list[str]]:
    """All plugins of Millrace and of the environments in ``plugin.path``; and which can't be used, with the reason."""
    own_versions = await asyncio.to_thread(own_distributions)
    scanned = await asyncio.to_thread(
        scan_folders, [item.strip() for item in plugin_path.split(",") if item.strip()], own_versions
    )
    described = await describe_all(scanned.environments.values())
    failures = {"": registry.failures} | {
        scanned.environments[key].name: description.failures for key, description in described.items()
    }
    unusable = [f"plugins in {path} can't be used: {reason}" for path, reason in scanned.failures.items()]
    unusable += [
        f"plugin {value} can't be used: {reason}"
        for description in failures.values()
        for value, reason in description.items()
    ]
    return PluginCatalog(
        [*registry.infos(), *(plugin for description in described.values() for plugin in description.plugins)],
        scanned.environments,
        own_versions,
        failures=failures,
    ), unusable


async def _read_topics(
    config_topic: str, offsets_topic: str, client: Mapping[str, Any], deadline_s: float
) -> tuple[ClusterSnapshot, dict[str, set[bytes]]]:
    # A worker would create what is missing; here a missing topic is a mistake in the file.
    async with TopicAdmin(client, deadline_s) as admin:
        for named_by, topic in (("config.storage.topic", config_topic), ("offset.storage.topic", offsets_topic)):
            try:
                present = await admin.partitions(topic)
            except KafkaError as error:
                raise ConfigInvalid(
                    f"topic {topic!r} ({named_by}) can't be described ({error!r}): this user needs the "
                    "permissions Describe and Read on it"
                ) from error
            if present is None:
                raise ConfigInvalid(
                    f"topic {topic!r} ({named_by}) does not exist, or this user may not see it: check that "
                    f"{named_by} and bootstrap.servers are the Java cluster's, and the user's permissions"
                )
    configs = ConfigStore(config_topic, client, lambda _: None)
    try:
        await configs.log.start(deadline_s)
    except Retriable as error:
        raise Retriable(
            f"the config topic {config_topic!r} could not be read ({error}): check bootstrap.servers, that "
            "config.storage.topic is the Java cluster's, and that this user may read it"
        ) from error
    try:
        snapshot = configs.snapshot
    finally:
        await configs.log.stop()
    keys = await _read_offset_keys(offsets_topic, client, snapshot.connectors, deadline_s)
    return snapshot, keys


async def _read_own_offsets(
    own_clients: clients.ConnectorClients, name: str, connector: Mapping[str, str], deadline_s: float
) -> set[bytes]:
    """The keys in a connector's own offsets topic, where its tasks continue."""
    own_topic = await own_clients.own_offsets(connector)
    if own_topic is None:
        return set()
    topic, client = own_topic
    async with TopicAdmin(client, deadline_s) as admin:
        if await admin.partitions(topic) is None:
            return set()  # the connector has not run yet
    return (await _read_offset_keys(topic, client, [name], deadline_s))[name]


async def _read_offset_keys(
    topic: str, client: Mapping[str, Any], names: Iterable[str], deadline_s: float
) -> dict[str, set[bytes]]:
    store = OffsetStore(topic, client)
    await store.start(deadline_s)
    try:
        return {name: {key for key, _ in store.raw(name)} for name in names}
    finally:
        await store.stop()


async def examine_connector(
    finding: Finding,
    connector: Mapping[str, str],
    registry: PluginRegistry,
    transformer: ConfigTransformer,
    masker: SecretMasker,
    worker: Mapping[str, str],
    deadline_s: float,
) -> None:
    """Fill in problems and notes; every text is free of secrets."""
    try:
        resolved, _ = await transformer.transform_async(connector)
        masker.learn(resolved)
        for value in resolved.values():
            for provider, path, key in find_references(value):
                finding.notes.append(
                    f"${{{provider}:{path}:{key}}} has no value on this machine: run this where the worker "
                    "will run, and name its config.providers"
                )
        answer = await validate_config(registry, connector, None, worker, resolved=resolved, deadline_s=deadline_s)
    except ConfigInvalid as error:
        finding.problems.append(_explain_unknown(finding.connector_class, str(error)) or masker.scrub(str(error)))
        return
    except MillraceError as error:
        finding.problems.append(masker.scrub(str(error)))
        return
    for item in answer["configs"]:
        finding.problems += [
            masker.scrub(_with_name(item["value"]["name"], message)) for message in item["value"]["errors"]
        ]
    finding.notes += [
        masker.scrub(_with_name(warning["name"], warning["message"])) for warning in answer.get("warnings", ())
    ]
    plugin = registry.configured(resolved)
    if issubclass(plugin.cls, JobConnector):
        finding.notes += _notes_of_job(plugin.cls, resolved, worker)
    elif not finding.offsets and finding.state != "STOPPED":
        finding.notes.append("no offset is saved: it starts from the beginning")


def _with_name(option: str, message: str) -> str:
    return message if option in message else f"{option}: {message}"


def _notes_of_job(cls: type[JobConnector], config: Mapping[str, str], worker: Mapping[str, str]) -> list[str]:
    """Where a sink connector of Java continues as a job."""
    group = job_form(cls, config, worker)[0].get("source.starting.group", "")
    if not group:
        return []
    note = f"it runs as a Spark job, which continues from the offsets of the consumer group {group} and commits to it"
    return [f"{note} (docs/jobs/java-sinks.md)"]


def _explain_unknown(connector_class: str, complaint: str) -> str | None:
    """Return an explanation for a missing class, where there is more to say than the validation's complaint."""
    if not connector_class.strip():
        return f"{_CLASS} is missing"
    if _SINK in connector_class.rpartition(".")[2]:
        return (
            f"{connector_class} is a sink connector that is not here (docs/jobs/java-sinks.md lists those that are): Spark "
            "jobs take its place (docs/connectors/spark-job.md). Delete it, or leave it FAILED, once a job does its work"
        )
    if complaint.startswith(_NOT_FOUND):
        # The complaint also lists all available classes: too long for a list of many connectors.
        return (
            f"{connector_class} is not here (`millrace plugins` shows what is): put a package that has it into plugin.path "
            "(docs/plugins.md), or leave the connector on a Java cluster"
        )
    return None


def as_text(report: MigrationReport) -> str:
    """The result for people."""
    lines = [f"worker: {message}" for message in report.worker]
    lines.append(f"{report.config_topic}: {len(report.findings)} connectors")
    for finding in report.findings:
        verdict = "can't run here" if finding.problems else "ready"
        lines.append(
            f"{finding.name}: {verdict} ({finding.connector_class}, {finding.state}, {finding.offsets} offsets)"
        )
        lines += [f"  problem: {message}" for message in finding.problems]
        lines += [f"  note: {message}" for message in finding.notes]
    failing = sum(bool(finding.problems) for finding in report.findings)
    lines.append(
        f"{failing} of {len(report.findings)} connectors can't run here" if failing else "all connectors can run here"
    )
    return "\n".join(lines)


def run_migrate_check(options: argparse.Namespace) -> int:
    """The command: prints the report; 0 all can run, 1 some can't, 2 it could not be found out."""
    path: Path = options.properties
    logging.getLogger("worker.validation").setLevel(logging.ERROR)  # its warnings are notes of the report
    try:
        with progress("reading the cluster's topics and checking its connectors", quiet_s=2):
            report = asyncio.run(check_migration(load_properties(path), options.timeout))
    except MillraceError as error:
        sys.stderr.write(f"millrace: {error}\n")
        return 2
    output = (
        json.dumps({"ready": report.ready, **asdict(report)}, indent=1, ensure_ascii=False)
        if options.json
        else as_text(report)
    )
    sys.stdout.write(output + "\n")
    return 0 if report.ready else 1
