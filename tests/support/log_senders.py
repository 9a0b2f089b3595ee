"""Real senders of logs: rsyslog and syslog-ng of Debian, and a client of Lumberjack. What starts one here blocks."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest

from compose.local.process.service import Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.debian import Unpacked, unpack_package
from worker.fetch.errors import Unavailable
from worker.fetch.packages import fetch_package
from worker.terminal import say

if TYPE_CHECKING:
    from pathlib import Path

_SUITE: Final = "bookworm"
#: A template of rsyslog that gives each message a name, the same whenever it is sent.
NAMED: Final = (
    'template(name="named" type="string" string="<%PRI%>1 %TIMESTAMP:::date-rfc3339% %HOSTNAME% %APP-NAME% %PROCID% '
    '%MSGID% [line@32473 id=\\"%uuid%\\"] %msg%")'
)
#: Another one: a message is named by the place of its line, so that a line that is read again has the same name.
PLACED: Final = (
    'template(name="placed" type="string" string="<%PRI%>1 %TIMESTAMP:::date-rfc3339% %HOSTNAME% %APP-NAME% %PROCID% '
    '%MSGID% [line@32473 id=\\"%$!metadata!filename%:%$!metadata!fileoffset%\\"] %msg%")'
)


def _tree(package: str, *extras: str) -> Unpacked:
    try:
        return unpack_package(package, _SUITE, say, extras)
    except Unavailable as reason:
        pytest.skip(str(reason))


def start_rsyslog(folder: Path, action: str, *files: Path) -> Service:
    """An rsyslog that sends the lines of files; stop it in the end.

    Args:
        folder: of its own.
        action: what to do with each line, in its language.
        files: to follow; each must exist.
    """
    tree = _tree("rsyslog", "rsyslog-relp", "rsyslog-openssl")
    folder.mkdir(parents=True, exist_ok=True)
    metadata = "on" if 'template="placed"' in action else "off"
    inputs = "\n".join(f'input(type="imfile" File="{file}" Tag="app:" addMetadata="{metadata}")' for file in files)
    settings = (
        f'global(workDirectory="{folder}" maxMessageSize="64k" parser.escapeControlCharactersOnReceive="off")\n'
        f'module(load="imfile")\nmodule(load="omrelp")\n{NAMED}\n{PLACED}\n{inputs}\n{action}\n'
    )
    path, pid = folder / "rsyslog.conf", folder / "rsyslog.pid"
    path.write_text(settings, encoding="utf-8")
    pid.unlink(missing_ok=True)
    modules = tree.root / "usr/lib/x86_64-linux-gnu/rsyslog"
    return Service(
        name="rsyslog",
        command=tree.command("usr/sbin/rsyslogd", "-n", "-M", str(modules), "-f", str(path), "-i", str(pid)),
        log_path=folder / "rsyslog.log",
        ready=pid.exists,
    ).start()


def start_syslog_ng(folder: Path, destination: str, file: Path) -> Service:
    """A syslog-ng that sends the lines of a file; stop it in the end.

    Args:
        folder: of its own.
        destination: the driver, in its language.
        file: to follow.
    """
    tree = _tree("syslog-ng-core")
    folder.mkdir(parents=True, exist_ok=True)
    path, pid = folder / "syslog-ng.conf", folder / "syslog-ng.pid"
    path.write_text(
        "@version: 3.38\noptions { stats_freq(0); };\n"
        f'source lines {{ file("{file}" flags(no-parse) follow-freq(0.1)); }};\n'
        f"destination millrace {{ {destination} }};\nlog {{ source(lines); destination(millrace); }};\n",
        encoding="utf-8",
    )
    names = {"f": path, "p": pid, "R": folder / "persist", "c": folder / "control"}
    return Service(
        name="syslog-ng",
        command=tree.command(
            "usr/sbin/syslog-ng",
            "-F",
            "--no-caps",
            f"--module-path={tree.root / 'usr/lib/syslog-ng/3.38'}",
            *(argument for name, value in names.items() for argument in (f"-{name}", str(value))),
        ),
        log_path=folder / "syslog-ng.log",
        ready=pid.exists,
    ).start()


def import_pylogbeat() -> Any:
    """The module ``pylogbeat``, with a client of Lumberjack."""
    try:
        folder = fetch_package("pylogbeat", load_manifest().versions["pylogbeat"], "a Lumberjack client", say)
    except Unavailable as reason:
        pytest.skip(str(reason))
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return import_module("pylogbeat")
