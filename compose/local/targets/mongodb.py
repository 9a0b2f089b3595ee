"""A stand-in for MongoDB as a plain process: SecantusDB, which speaks its protocol over its storage engine.

No registry has MongoDB's own server.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.service import Managed, Service
from compose.local.targets.hbase import accepts_connections
from worker.fetch.artifacts import load_manifest
from worker.fetch.packages import fetch_package
from worker.terminal import Say, drop_line


@dataclass(slots=True)
class MongoDb(Managed):
    """One server on the loopback address; what is in its folder is used again.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port when it is free; None for any port.
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

    def _prepare(self) -> Service:
        version = load_manifest().versions["secantusdb"]
        packages = fetch_package("secantusdb", version, "MongoDB's stand-in", self.say, with_dependencies=True)
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        program = Path(__file__).with_name("mongodb_server.py")
        return Service(
            name=f"MongoDB ({LOOPBACK}:{self.port})",
            command=[
                sys.executable, "-P", str(program), str(self.port), str(folder / "data"), str(packages), self.user,
                self.password,
            ],
            log_path=folder / "mongodb.log",
            ready=partial(accepts_connections, self.port),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )  # fmt: skip
