"""An S3 as a plain process: moto's server, which keeps all objects in memory."""

import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.service import Managed, Service
from worker.fetch.errors import Unavailable


def speaks_s3(port: int, timeout: float = 1.0) -> bool:
    """Whether an HTTP server answers on the port; blocks for about `timeout` seconds at most."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/", timeout=timeout):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@dataclass(slots=True)
class S3(Managed):
    """One server on the loopback address, which takes any login.

    Attributes:
        state_dir: Folder of its log.
        port: Port when it is free; None for any port.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
    """

    state_dir: Path
    port: int | None = None
    detached: bool = False
    start_timeout: float = 60.0

    @property
    def url(self) -> str:
        """Its address; known before the start."""
        _ = self.service
        return f"http://{LOOPBACK}:{self.port}"

    def make_bucket(self, name: str) -> None:
        """Make a bucket; blocks."""
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310
            pass

    def _prepare(self) -> Service:
        if find_spec("moto") is None:
            raise Unavailable("there is no moto: pip install 'moto[s3,server]'")
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return Service(
            name=f"S3 ({LOOPBACK}:{self.port})",
            command=[sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self.port)],
            log_path=folder / "s3.log",
            ready=partial(speaks_s3, self.port),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )
