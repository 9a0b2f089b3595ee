"""Planted secrets, looked for in everything that leaves the pipeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import AdminClient

from compose.demo.run import JOBS, SOURCES
from compose.soak.faults import list_processes
from compose.soak.processes import read_arguments
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from compose.demo.run import Demo

#: Data of the servers that have the passwords as their own, and the file that the config provider reads.
_OWNERS: Final = ("mariadb", "postgres", "cassandra", "scylla", "secrets.properties")
#: Files are read in chunks of that size, each of which begins with the end of the one before.
_CHUNK_BYTES: Final = 16 << 20
_OVERLAP: Final = 256


def find_leaks(locations: Iterable[tuple[str, bytes]], secrets: Mapping[str, str]) -> list[str]:
    """Return where a secret is that must not be there, each location once; empty if nowhere.

    Args:
        locations: What to search, with names for people.
        secrets: The text of each secret, by its name.
    """
    leaks = (
        f"the {name} is in {location}"
        for location, content in locations
        for name, secret in secrets.items()
        if secret.encode() in content
    )
    return list(dict.fromkeys(leaks))


def read_locations(demo: Demo) -> Iterator[tuple[str, bytes]]:
    """Read all that leaves a pipeline that runs: files, arguments of processes, REST answers, metrics, topics. Blocks.

    Raises:
        OSError: A worker does not answer.
    """
    yield from read_files(demo.folder)
    for pid in list_processes(demo.rest.workers):
        yield f"the arguments of process {pid}", read_arguments(pid).encode()
    for worker in demo.rest.workers:
        for path in _list_paths():
            _, answer = worker.request("GET", path)
            yield f"GET {worker.url}{path}", (answer if isinstance(answer, str) else json.dumps(answer)).encode()
    for topic in AdminClient({"bootstrap.servers": demo.kafka.bootstrap}).list_topics(timeout=30).topics:
        for record in read_topic(demo.kafka.bootstrap, topic):
            headers = b"".join(value or b"" for _, value in record.headers or ())
            yield f"topic {topic}", b"\0".join((record.key or b"", record.value or b"", headers))


def read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Read logs, checkpoints, state and core files below the folder, large ones in several chunks. Blocks."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] in _OWNERS or not path.is_file() or path.is_symlink():
            continue
        try:
            with path.open("rb") as file:
                end = b""
                while chunk := file.read(_CHUNK_BYTES):
                    yield str(name), end + chunk
                    end = chunk[-_OVERLAP:]
        except FileNotFoundError:
            continue  # removed meanwhile


def _list_paths() -> Iterable[str]:
    yield from ("/metrics", "/health", "/connectors?expand=status&expand=info", "/admin/loggers")
    for name in (*SOURCES, *JOBS):
        yield from (
            f"/connectors/{name}/{part}" for part in ("config", "status", "offsets", "tasks", "lag", "progress")
        )
