"""OpenSearch as a plain process: its server's jars from a Maven repository, laid out as its distribution has them."""

import json
import os
import shutil
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from compose.local.ports import LOOPBACK, free_ports
from compose.local.process.jvm import Heap, java_command, write_log4j
from compose.local.process.service import Managed, Service
from compose.local.process.unprivileged import NOBODY, drop_privileges
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import Say, drop_line

DEFAULT_PORT: Final = 9200
_JAVA: Final = 21
_MODULE: Final = "transport-netty4"
#: Jars of the module that speaks HTTP; all others are the server's.
_OF_MODULE: Final = ("netty-", "opensearch-netty4", "transport-netty4-client")
_DESCRIPTOR: Final = """\
name={module}
description=Netty 4 for HTTP and between nodes
classname=org.opensearch.transport.Netty4ModulePlugin
java.version={java}
version={version}
opensearch.version={version}
has.native.controller=false
"""


def speaks_opensearch(port: int, timeout: float = 1.0) -> bool:
    """Whether a node on the port has elected itself; blocks for about `timeout` seconds at most."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/_cluster/health", timeout=timeout) as answer:
            return json.loads(answer.read())["status"] in ("green", "yellow")
    except (OSError, ValueError):
        return False


@dataclass(slots=True)
class OpenSearch(Managed):
    """One node on the loopback address, without logins; what is in its folder is used again.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port for HTTP when it is free; None for any port.
        heap: Size of its heap.
        jvm_options: Further options of the JVM, see `jvm.FAST_START`.
        settings: Settings that override those made here (`opensearch.yml`).
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = DEFAULT_PORT
    heap: Heap = field(default_factory=Heap)
    jvm_options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    start_timeout: float = 120.0
    say: Say = drop_line

    @property
    def url(self) -> str:
        """Its address; known before the start."""
        _ = self.service
        return f"http://{LOOPBACK}:{self.port}"

    def _prepare(self) -> Service:
        java = find_java(_JAVA, say=self.say)
        jars = ArtifactResolver(say=self.say).fetch(load_manifest().members("opensearch"), "OpenSearch")
        prefix, to_nobody = drop_privileges("OpenSearch", [str(java.executable), "-version"])
        self.port, transport = free_ports([self.port, None])
        folder = self.state_dir.absolute()
        home = _lay_out(folder / "home", jars)
        config = folder / "config"
        config.mkdir(parents=True, exist_ok=True)
        write_log4j(config, "WARN")
        settings = {
            "cluster.name": "millrace",
            "node.name": "node-1",
            "discovery.type": "single-node",
            "network.host": LOOPBACK,
            "http.port": str(self.port),
            "transport.port": str(transport),
            "path.data": str(folder / "data"),
            "path.logs": str(folder / "logs"),
            # A disk that is nearly full for other reasons must not stop a test.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            **self.settings,
        }
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in settings.items()]
        (config / "opensearch.yml").write_text("".join(lines), encoding="utf-8")
        for name in ("data", "logs", "config", "tmp"):
            (folder / name).mkdir(exist_ok=True)
            if to_nobody:
                os.chown(folder / name, NOBODY, NOBODY)
        return Service(
            name=f"OpenSearch ({LOOPBACK}:{self.port})",
            command=[
                *prefix,
                *java_command(
                    java,
                    [home / "lib" / "*"],
                    "org.opensearch.bootstrap.OpenSearch",
                    [],
                    self.heap,
                    [
                        f"-Dopensearch.path.home={home}",
                        f"-Dopensearch.path.conf={config}",
                        "-Dopensearch.distribution.type=tar",
                        f"-Djava.io.tmpdir={folder / 'tmp'}",
                        "--add-modules=jdk.incubator.vector",
                        *self.jvm_options,
                    ],
                ),
            ],
            log_path=folder / "opensearch.log",
            ready=partial(speaks_opensearch, self.port),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )


def _lay_out(home: Path, jars: list[Path]) -> Path:
    """The folder of a distribution, made of links to the cache, at each start, for the jars may be others."""
    shutil.rmtree(home, ignore_errors=True)
    module = home / "modules" / _MODULE
    for part in (home / "lib", module, home / "plugins"):
        part.mkdir(parents=True)
    for jar in jars:
        (module if jar.name.startswith(_OF_MODULE) else home / "lib").joinpath(jar.name).symlink_to(jar)
    version = load_manifest().versions["opensearch"]
    descriptor = _DESCRIPTOR.format(module=_MODULE, java=_JAVA, version=version)
    (module / "plugin-descriptor.properties").write_text(descriptor, encoding="utf-8")
    return home
