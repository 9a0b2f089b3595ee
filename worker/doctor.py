"""``millrace doctor``: looks at the machine, a worker's properties, Kafka and connectors, and says what to fix.

It writes nothing, creates no topic and starts no connector. Connectors look at their own sources, as they do for
``PUT /connector-plugins/.../config/validate``: whether the server answers, its version, its settings, the user's rights.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import shutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from aiokafka.errors import KafkaError

from connectors.errors import MillraceError
from offsets.admin import TopicAdmin
from offsets.topics import partitions_problem, policy_problem
from worker.config.worker_config import parse_worker
from worker.control import clients
from worker.control.state.stores import internal_topics
from worker.fetch.errors import StackError
from worker.fetch.java import installed_java
from worker.fetch.paths import cache_dir
from worker.launch import read_connector
from worker.migration import Finding, examine_connector
from worker.plugins.providers import provider_finder
from worker.plugins.registry import PluginRegistry
from worker.properties import load_properties
from worker.secrets.masking import SecretMasker
from worker.secrets.providers import ConfigTransformer, build_providers
from worker.terminal import progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from connectors.options import Config
    from offsets.topics import InternalTopic

_JAVA: Final = 17
_GIB: Final = 2**30
#: Bytes that a worker and the local stack need, and files and sockets that a worker may have open.
_LEAST_DISK: Final = 5 * _GIB
_LEAST_MEMORY: Final = 2 * _GIB
_LEAST_FILES: Final = 4096

State = Literal["ok", "note", "problem"]


class Check(NamedTuple):
    """The result of one check.

    Attributes:
        subject: What was looked at, such as ``topic my-configs``.
        state: ``problem`` keeps something from working; ``note`` does not.
        message: What is so; for a problem also how to fix it.
    """

    subject: str
    state: State
    message: str


def check_machine() -> Iterator[Check]:
    """Python, memory, disk, open files, and what Spark jobs need. Blocks while Java says its version."""
    yield Check("Python", "ok", f"{sys.version.split()[0]} on {os.cpu_count()} cores")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield _at_least("memory", memory, _LEAST_MEMORY, "a worker with one task host and a job need this much")
    cache = cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    yield _at_least(
        f"disk at {cache}", shutil.disk_usage(existing).free, _LEAST_DISK, "make room, or set MILLRACE_CACHE"
    )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _LEAST_FILES:
        yield Check(
            "open files", "note", f"{files} per process; many tasks need {_LEAST_FILES}: ulimit -n {_LEAST_FILES}"
        )
    else:
        yield Check("open files", "ok", "no limit" if files == resource.RLIM_INFINITY else f"{files} per process")
    yield _check_spark()


def _at_least(subject: str, amount: int, least: int, advice: str) -> Check:
    size = f"{amount / _GIB:.1f} GiB"
    return Check(subject, "ok", size) if amount >= least else Check(subject, "note", f"{size}; {advice}")


def _check_spark() -> Check:
    if find_spec("pyspark") is None:
        return Check("Spark jobs", "note", "can't run here: pip install 'millrace[spark]'")
    java = installed_java(_JAVA)
    if java is None:
        return Check(
            "Spark jobs", "note", f"PySpark is here; Java {_JAVA} or later is not, and is fetched when a job starts"
        )
    return Check("Spark jobs", "ok", f"PySpark, and Java {java.version} ({java.origin})")


async def check_worker(properties: Mapping[str, str], connectors: Sequence[Mapping[str, str]]) -> list[Check]:
    """A worker's properties, its Kafka and topics, and connectors on it.

    Args:
        properties: The worker's, as in its file.
        connectors: Configurations with their names.
    """
    checks: list[Check] = []
    masker = SecretMasker()
    try:
        providers = await asyncio.to_thread(build_providers, properties, provider_finder(properties))
        transformer = ConfigTransformer(providers, masker.add)
        resolved, _ = await transformer.transform_async(properties)
        masker.learn(resolved)
        config, warnings = parse_worker(resolved)
        client = await asyncio.to_thread(clients.reader_arguments, resolved, "millrace-doctor")
    except MillraceError as error:
        return [Check("worker properties", "problem", masker.scrub(str(error)))]
    checks += [Check("worker properties", "note", masker.scrub(warning)) for warning in warnings]
    checks.append(Check("worker properties", "ok", f"cluster {config['group.id']}"))
    checks += [
        check._replace(message=masker.scrub(check.message)) for check in await check_kafka(config, resolved, client)
    ]
    registry = await asyncio.to_thread(PluginRegistry, resolved.get("plugin.path", ""))
    for connector in connectors:
        finding = Finding(connector["name"], connector.get("connector.class", ""), "STARTED", offsets=1)
        await examine_connector(finding, connector, registry, transformer, masker, resolved, 60.0)
        subject = f"connector {finding.name}"
        checks += [Check(subject, "problem", problem) for problem in finding.problems]
        checks += [Check(subject, "note", note) for note in finding.notes]
        if not finding.problems:
            checks.append(Check(subject, "ok", "can run"))
    return checks


async def check_kafka(config: Config, properties: Mapping[str, str], client: Mapping[str, Any]) -> list[Check]:
    """Whether brokers answer, and whether the internal topics are as they have to be.

    Args:
        config: The worker's parsed properties.
        properties: The same, with secrets in place.
        client: aiokafka's arguments.
    """
    servers = ",".join(config["bootstrap.servers"])
    try:
        async with TopicAdmin(client, 10.0) as admin:
            brokers = admin.count_brokers()
            checks = [Check(f"Kafka at {servers}", "ok", f"{brokers} broker{'s' * (brokers != 1)}")]
            topics = internal_topics(config, properties)
            checks += [await _check_topic(admin, topic, brokers, servers) for topic in topics]
    except (MillraceError, KafkaError) as error:
        return [Check(f"Kafka at {servers}", "problem", str(error))]
    return checks


async def _check_topic(admin: TopicAdmin, topic: InternalTopic, brokers: int, servers: str) -> Check:
    subject = f"topic {topic.name}"
    try:
        partitions = await admin.partitions(topic.name)
    except KafkaError as error:
        advice = "give the worker's user Describe, DescribeConfigs, Create, Read and Write on it"
        return Check(subject, "problem", f"can't be described: {error!r}; {advice}")
    if partitions is None:
        if topic.replication_factor > brokers:
            return Check(
                subject,
                "problem",
                f"is not there, and {topic.replication_factor} copies of it can't be kept by {brokers} broker(s): start "
                f"more, or set {topic.kind}.storage.replication.factor={brokers} (one that stands for the config topic "
                "holds for the placement topic too)",
            )
        return Check(subject, "ok", "is not there; the first worker creates it")
    settings = await admin.settings(topic.name)
    problem = partitions_problem(topic, partitions) or policy_problem(
        topic, settings.get("cleanup.policy", ""), servers
    )
    return (
        Check(subject, "problem", problem) if problem else Check(subject, "ok", f"{partitions} partition(s), compacted")
    )


def format_checks(checks: Sequence[Check]) -> str:
    """The result for people: a line for each check, and what it comes to. Pure."""
    lines = [f"{check.state:8}{check.subject}: {check.message}" for check in checks]
    problems = sum(check.state == "problem" for check in checks)
    lines.append(f"{problems} problem{'s' * (problems != 1)} to fix" if problems else "no problems")
    return "\n".join(lines)


def run_doctor(options: argparse.Namespace) -> int:
    """The command: prints the checks; exit code 0 without problems, else 1."""
    # Their warnings would say again, in the same words or other ones, what a check says.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("worker.validation").setLevel(logging.ERROR)
    checks = list(check_machine())
    properties: Path | None = options.properties
    if properties is not None:
        try:
            connectors = [read_connector(path) for path in options.connectors]
            with progress("asking the servers", quiet_s=2):
                checks += asyncio.run(check_worker(load_properties(properties), connectors))
        except (MillraceError, StackError) as error:
            checks.append(Check(str(properties), "problem", str(error)))
    sys.stdout.write(format_checks(checks) + "\n")
    return 1 if any(check.state == "problem" for check in checks) else 0
