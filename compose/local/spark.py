"""A standalone Spark cluster of PySpark's own scripts: a master, and workers of one core each."""

import json
import sys
import urllib.request
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from compose.local.ports import LOOPBACK
from compose.local.process.service import Service
from worker.fetch.errors import StackError

DEFAULT_PORT: Final = 7077
_MEMORY: Final = "1g"


def spark_home() -> Path:
    """The folder of the installed Spark.

    Raises:
        StackError: PySpark is not installed.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise StackError("PySpark is not installed; install Millrace with the extra 'spark'")
    return Path(spec.origin).parent


def master_service(folder: Path, java_home: Path, port: int, web_port: int, *, detached: bool = False) -> Service:
    """The master, prepared but not started; its workers register at ``spark://127.0.0.1:port``.

    Args:
        folder: Folder of its log.
        java_home: A Java runtime that Spark can use.
        port: Port for workers and drivers.
        web_port: Port of its page.
        detached: Whether it outlives this program.
    """
    return _build_service(
        "Spark's master",
        ["org.apache.spark.deploy.master.Master", "--port", str(port), "--webui-port", str(web_port)],
        folder / "master.log",
        java_home,
        web_port,
        detached=detached,
    )


def worker_service(
    folder: Path, java_home: Path, master_port: int, port: int, web_port: int, *, detached: bool = False
) -> Service:
    """A worker, prepared but not started; the arguments are those of ``master_service``."""
    return _build_service(
        "Spark's worker",
        [
            *("org.apache.spark.deploy.worker.Worker", "--port", str(port), "--webui-port", str(web_port)),
            *("--cores", "1", "--memory", _MEMORY, "--work-dir", str(folder), f"spark://{LOOPBACK}:{master_port}"),
        ],
        folder / "worker.log",
        java_home,
        web_port,
        detached=detached,
    )


def count_workers(master_web_port: int) -> int:
    """Workers that have registered; -1 while the master does not answer. Blocks for two seconds at most."""
    answer = _ask_page(master_web_port)
    return -1 if answer is None else int(answer["aliveworkers"])


def _build_service(
    name: str, arguments: list[str], log: Path, java_home: Path, web_port: int, *, detached: bool
) -> Service:
    return Service(
        f"{name} ({LOOPBACK}:{web_port})",
        [str(spark_home() / "bin" / "spark-class"), *arguments, "--host", LOOPBACK],
        log,
        partial(_is_answering, web_port),
        environment={
            "JAVA_HOME": str(java_home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
        },
        detached=detached,
    )


def _is_answering(web_port: int) -> bool:
    return _ask_page(web_port) is not None


def _ask_page(web_port: int) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{web_port}/json", timeout=2) as answer:
            loaded: dict[str, Any] = json.load(answer)
            return loaded
    except (OSError, ValueError):
        return None
