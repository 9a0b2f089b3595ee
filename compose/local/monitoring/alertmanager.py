"""A real Alertmanager, where one can be had: it sends the alerts that Prometheus raises, as mail or to a webhook."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from compose.local.monitoring.prometheus import unpack_debian
from compose.local.ports import LOOPBACK, free_port
from compose.local.process.http import is_answering
from compose.local.process.service import Managed, Service
from worker.fetch.paths import cache_dir
from worker.terminal import Say, drop_line

DEFAULT_PORT = 9093
_PACKAGE = "prometheus-alertmanager"
#: Where Debian's program looks for its templates. It has no option for that, and writing there needs root.
_TEMPLATES = "/usr/share/prometheus/alertmanager"


def find_alertmanager(say: Say = drop_line) -> Path:
    """The program; `amtool` lies next to it. Blocks.

    It is the one on the PATH, else Debian's package, downloaded and unpacked into the cache: neither needs root.

    Raises:
        Unavailable: Neither can be had here; the message says why.
    """
    for name in ("alertmanager", _PACKAGE):
        on_path = shutil.which(name)
        if on_path:
            return Path(on_path)
    program = _unpacked() / "usr" / "bin" / "alertmanager"
    if not program.exists():
        if not program.with_name(_PACKAGE).exists():
            unpack_debian("Alertmanager", _PACKAGE, _unpacked(), say)
        _move_templates(program.with_name(_PACKAGE), program)
    return program


def _unpacked() -> Path:
    return cache_dir() / "alertmanager"


def _move_templates(original: Path, program: Path) -> None:
    """Write a copy of Debian's program that looks for its templates in its working folder: in a path of the same length."""
    here = ("./" * len(_TEMPLATES))[: len(_TEMPLATES)]
    with tempfile.NamedTemporaryFile(dir=program.parent, delete=False) as part:
        part.write(original.read_bytes().replace(_TEMPLATES.encode(), here.encode()))
    copy = Path(part.name)
    copy.chmod(0o755)
    copy.replace(program)  # whole, whoever else does the same


@dataclass(slots=True)
class Alertmanager(Managed):
    """One Alertmanager without others.

    Attributes:
        state_dir: Folder of its data and log.
        config: Its configuration file.
        port: Port when it is free; None for any port.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    config: Path
    port: int | None = DEFAULT_PORT
    detached: bool = False
    start_timeout: float = 60.0
    say: Say = drop_line

    @property
    def url(self) -> str:
        """Root of its web interface, without a slash at the end; known before the start."""
        return f"http://{self.address}"

    @property
    def address(self) -> str:
        """`host:port`, as Prometheus wants it; known before the start."""
        _ = self.service
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> Service:
        program = find_alertmanager(self.say)
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        templates = _unpacked() / _TEMPLATES.lstrip("/")
        return Service(
            name=f"Alertmanager ({LOOPBACK}:{self.port})",
            command=[
                str(program),
                f"--config.file={self.config.absolute()}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self.port}",
                "--cluster.listen-address=",  # alone: no port for others
            ],
            log_path=folder / "alertmanager.log",
            ready=lambda: is_answering(f"http://{LOOPBACK}:{self.port}/-/ready"),
            folder=templates if program.is_relative_to(_unpacked()) else None,
            detached=self.detached,
            start_timeout=self.start_timeout,
        )
