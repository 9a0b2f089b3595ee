"""A real standalone Spark cluster on loopback: one master, two workers, started by pyspark's own scripts."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from compose.local import spark
from compose.local.ports import LOOPBACK, free_ports
from compose.local.process.service import Service, wait_until
from spark_jobs.spark.session import java_home
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

SPARK_HOME = spark.spark_home()


class StandaloneCluster:
    """``with StandaloneCluster(folder) as cluster: cluster.master``."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._stack = ExitStack()
        self._port, self._page = free_ports([None, None])
        self.master = f"spark://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        home = java_home()
        self._start(spark.master_service(self._folder / "master", home, self._port, self._page))
        for number in range(1, self._workers + 1):
            port, page = free_ports([None, None])
            folder = self._folder / f"worker-{number}"
            folder.mkdir(parents=True)
            self._start(spark.worker_service(folder, home, self._port, port, page))
        if not wait_until(lambda: self.alive() == self._workers, 60):
            raise StackError(f"{self.alive()} of {self._workers} workers have registered at {self.master}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def alive(self) -> int:
        """Workers that have registered; -1 while the master does not answer."""
        return spark.count_workers(self._page)

    def _start(self, service: Service) -> None:
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
