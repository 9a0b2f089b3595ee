"""Planted secrets, looked for in everything that leaves the pipeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import AdminClient

from compose.demo.run import JOBS, SOURCES
from compose.local.topics import read_topic
from compose.soak.faults import list_processes
from compose.soak.processes import read_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from compose.demo.run import Demo

#: Data of the servers that have the passwords as their own, and the file that the config provider reads.
_OWNERS: Final = ("mariadb", "postgres", "cassandra", "scylla", "secrets.properties")
_LARGEST_FILE: Final = 256 << 20


def find_leaks(demo: Demo, secrets: Mapping[str, str]) -> list[str]:
    """Return where a secret is that must not be there; empty if nowhere. Blocks.

    Args:
        demo: A pipeline that runs.
        secrets: The text of each secret, by its name.
    """
    return [
        f"the {name} is in {location}"
        for location, content in _read_places(demo)
        for name, secret in secrets.items()
        if secret.encode() in content
    ]


def _read_places(demo: Demo) -> Iterator[tuple[str, bytes]]:
    yield from _read_files(demo.folder)
    for pid in list_processes(demo.rest.workers):
        yield f"the arguments of process {pid}", read_arguments(pid).encode()
    for worker in demo.rest.workers:
        for path in _list_paths():
            try:
                _, answer = worker.request("GET", path)
            except OSError:
                continue
            yield f"GET {worker.url}{path}", (answer if isinstance(answer, str) else json.dumps(answer)).encode()
    for topic in AdminClient({"bootstrap.servers": demo.kafka.bootstrap}).list_topics(timeout=30).topics:
        for record in read_topic(demo.kafka.bootstrap, topic):
            headers = b"".join(value or b"" for _, value in record.headers or ())
            yield f"topic {topic}", b"\0".join((record.key or b"", record.value or b"", headers))


def _read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Logs, checkpoints, state and core files below the folder."""
    for path in sorted(folder.rglob("*")):
        if path.relative_to(folder).parts[0] in _OWNERS or not path.is_file() or path.is_symlink():
            continue
        try:
            if path.stat().st_size <= _LARGEST_FILE:
                yield str(path.relative_to(folder)), path.read_bytes()
        except OSError:
            continue  # removed meanwhile


def _list_paths() -> Iterable[str]:
    yield from ("/metrics", "/health", "/connectors?expand=status&expand=info", "/admin/loggers")
    for name in (*SOURCES, *JOBS):
        yield from (
            f"/connectors/{name}/{part}" for part in ("config", "status", "offsets", "tasks", "lag", "progress")
        )
