"""Real MySQL (9.x) as a plain process, from the packages of Debian's unstable suite; off unless asked for."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from compose.local.mariadb import first_statements, root_option, server_options, speaks_mysql
from compose.local.ports import LOOPBACK, free_port
from compose.local.process.service import Managed, Service
from worker.fetch.debian import Unpacked, unpack_package
from worker.fetch.errors import StackError, Unavailable
from worker.terminal import Say, drop_line

_PACKAGE: Final = "mysql-server-core"
_SUITE: Final = "sid"


def find_mysql(say: Say = drop_line) -> Unpacked:
    """The packages with `usr/sbin/mysqld`, downloaded and unpacked once. Blocks.

    Raises:
        Unavailable: Debian's packages can't be reached or run here.
    """
    packages = unpack_package(_PACKAGE, _SUITE, say)
    probe = subprocess.run(packages.command("usr/sbin/mysqld", "--no-defaults", "--version"), capture_output=True, text=True,
                           check=False)  # fmt: skip
    if probe.returncode:
        raise Unavailable(f"MySQL cannot run here: {probe.stderr.strip()[-400:]}")
    return packages


@dataclass(slots=True)
class MySqlServer(Managed):
    """One MySQL server on the loopback address, with binary log and GTIDs on; data in its folder is used again.

    Its accounts use `caching_sha2_password`, as MySQL has it: clients need TLS or its public key for the first login.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port when it is free; None for any port.
        user: A user with all rights.
        password: Its password.
        database: The database that is made.
        durable: Whether a commit waits for the disk.
        settings: Server options that override those made here, names with dashes; an empty value for a bare switch.
        logged: Whether making the user and the database is written to the binary log, at each start.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = None
    user: str = "millrace"
    password: str = "millrace"  # noqa: S105 - listens on the loopback address only
    database: str = "millrace"
    durable: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    logged: bool = True
    detached: bool = False
    start_timeout: float = 60.0
    say: Say = drop_line

    @property
    def address(self) -> str:
        """`host:port` for clients; known before the start."""
        _ = self.service
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> Service:
        program = find_mysql(self.say)
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        data, users = folder / "data", folder / "users.sql"
        base = {
            "basedir": str(program.root / "usr"),
            "lc-messages-dir": str(program.root / "usr/share/mysql"),
            "character-sets-dir": str(program.root / "usr/share/mysql/charsets"),
            "datadir": str(data),
            **root_option(),
        }
        if not (folder / "made").exists():
            shutil.rmtree(data, ignore_errors=True)  # the rest of one that was interrupted
            _install_database(program, base, data)
            (folder / "made").write_bytes(b"")
        users.touch(mode=0o600)
        users.write_text(
            first_statements(self.user, self.password, self.database, logged=self.logged), encoding="utf-8"
        )
        settings = {
            **base,
            "bind-address": LOOPBACK,
            "port": str(self.port),
            "mysqlx": "0",
            "socket": "mysql.sock",  # in the data folder: a path may be too long for a socket
            "pid-file": "mysql.pid",
            "init-file": str(users),
            "secure-file-priv": "NULL",
            "skip-name-resolve": "",
            "server-id": "1",
            "log-bin": "binlog",
            "binlog-row-metadata": "FULL",
            "gtid-mode": "ON",
            "enforce-gtid-consistency": "ON",
            "innodb-buffer-pool-size": "128M",
            "innodb-flush-log-at-trx-commit": "1" if self.durable else "2",
            "sync-binlog": "1" if self.durable else "0",
            "max-allowed-packet": "64M",
            **self.settings,
        }
        return Service(
            name=f"MySQL {program.version} ({LOOPBACK}:{self.port})",
            command=program.command("usr/sbin/mysqld", "--no-defaults", *server_options(settings)),
            log_path=folder / "mysql.log",
            ready=partial(speaks_mysql, self.port),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )


def _install_database(program: Unpacked, base: Mapping[str, str], data: Path) -> None:
    command = program.command("usr/sbin/mysqld", "--no-defaults", "--initialize-insecure", *server_options(base))
    result = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if result.returncode:
        raise StackError(
            f"MySQL's data folder {data} could not be made: {(result.stderr + result.stdout).strip()[-800:]}"
        )
