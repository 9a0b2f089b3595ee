"""ClickHouse's engine behind an emulation of its server, as a plain process; no registry has a current server itself."""

import sys
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.packages import fetch_package
from worker.terminal import Say, drop_line


def speaks_clickhouse(port: int, timeout: float = 1.0) -> bool:
    """Whether the server answers on the port; blocks for about `timeout` seconds at most."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/ping", timeout=timeout) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass(slots=True)
class ClickHouse(Managed):
    """One emulated server on the loopback address; what is in its folder is used again.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port for HTTP when it is free; None for any port.
        user: That clients must name; empty for no login.
        password: That clients must give.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = None
    user: str = ""
    password: str = ""
    detached: bool = False
    start_timeout: float = 60.0
    say: Say = drop_line

    @property
    def url(self) -> str:
        """Its address; known before the start."""
        _ = self.service
        return f"http://{LOOPBACK}:{self.port}"

    def _prepare(self) -> Service:
        packages = fetch_package("chdb-core", load_manifest().versions["chdb-core"], "ClickHouse's engine", self.say)
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        program = Path(__file__).with_name("clickhouse_server.py")
        return Service(
            name=f"ClickHouse ({LOOPBACK}:{self.port})",
            command=[
                sys.executable, "-P", str(program), str(self.port), str(folder / "data"), str(packages), self.user,
                self.password,
            ],
            log_path=folder / "clickhouse.log",
            ready=partial(speaks_clickhouse, self.port),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )  # fmt: skip
