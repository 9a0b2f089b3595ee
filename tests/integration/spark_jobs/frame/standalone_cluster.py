"""A real standalone Spark cluster on loopback: one master, two workers, started by pyspark's own scripts."""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyspark

from compose.local.service import Service
from spark_jobs.session import java_home

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

SPARK_HOME = Path(pyspark.__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StandaloneCluster:
    """``with StandaloneCluster(folder) as cluster: cluster.master``."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._stack = ExitStack()
        self._ui = free_port()
        self.master = f"spark://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        _, _, port = self.master.rpartition(":")
        self._start(
            "master",
            [
                "org.apache.spark.deploy.master.Master",
                "--host",
                "127.0.0.1",
                "--port",
                port,
                "--webui-port",
                str(self._ui),
            ],
            lambda: self.alive() == 0,
        )
        for number in range(1, self._workers + 1):
            folder = self._folder / f"worker-{number}"
            folder.mkdir(parents=True)
            self._start(
                f"worker-{number}",
                [
                    "org.apache.spark.deploy.worker.Worker",
                    "--host",
                    "127.0.0.1",
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--webui-port",
                    str(free_port()),
                    "--work-dir",
                    str(folder),
                    self.master,
                ],
                partial(self._count, number),
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def alive(self) -> int:
        """Workers that have registered; -1 while the master does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ui}/json", timeout=2) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):
            return -1

    def _count(self, expected: int) -> bool:
        return self.alive() == expected

    def _start(self, name: str, arguments: list[str], ready: Callable[[], bool]) -> None:
        service = Service(
            name,
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            self._folder / f"{name}.log",
            ready,
            environment={
                "JAVA_HOME": str(java_home()),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_DAEMON_MEMORY": "256m",
            },
            start_timeout=60,
        )
        service.start()
        self._stack.callback(service.stop)


def submit_command(
    master: str, jars: list[Path], zip_path: Path, script: Path, *arguments: str
) -> tuple[list[str], dict[str, str]]:
    """A ``spark-submit`` command line and its environment."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return (
        [
            str(SPARK_HOME / "bin" / "spark-submit"),
            "--master",
            master,
            "--driver-memory",
            "512m",
            "--executor-memory",
            "512m",
            "--conf",
            "spark.driver.host=127.0.0.1",
            "--conf",
            "spark.driver.bindAddress=127.0.0.1",
            "--jars",
            ",".join(map(str, jars)),
            "--py-files",
            str(zip_path),
            str(script),
            *arguments,
        ],
        environment,
    )
