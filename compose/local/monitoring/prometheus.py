"""A real Prometheus, where one can be had: it proves that the metrics can be scraped and the alert rules load."""

import json
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.http import is_answering, send_request
from compose.local.process.service import Managed, Service
from worker.fetch.errors import StackError, Unavailable
from worker.fetch.paths import cache_dir
from worker.terminal import Say, drop_line, progress

DEFAULT_PORT = 9090
_ALERTMANAGERS = "alertmanagers.json"


def tell_alertmanager(state_dir: Path, address: str) -> None:
    """Have the Prometheus of `state_dir` send its alerts to the Alertmanager at `address`, whether it runs by now or not."""
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / _ALERTMANAGERS).write_text(json.dumps([{"targets": [address]}]), encoding="utf-8")


def find_prometheus(say: Say = drop_line) -> Path:
    """The folder that holds the `prometheus` binary (and `promtool`). Blocks.

    It is the one on the PATH, else Debian's package, downloaded and unpacked into the cache: neither needs root.

    Raises:
        Unavailable: Neither can be had here; the message says why.
    """
    on_path = shutil.which("prometheus")
    if on_path:
        return Path(on_path).parent
    folder = cache_dir() / "prometheus"
    if not (folder / "usr" / "bin" / "prometheus").exists():
        unpack_debian("Prometheus", "prometheus", folder, say)
    return folder / "usr" / "bin"


def unpack_debian(program: str, package: str, folder: Path, say: Say) -> None:
    """Unpack one Debian package, without those that it needs, into `folder`. Blocks.

    Args:
        program: How people call its program.
        package: Its name, and that of its program in `usr/bin`.
        folder: What would be `/`; made.
        say: Where progress lines go.

    Raises:
        Unavailable: The package cannot be had here; the message says why.
    """
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise Unavailable(f"{program} is not on the PATH, and there is no {tool} to bring it; install {program}")
    text = f"downloading {program}: Debian's package, 10 to 20 MB, once"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with progress(text, say), tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as temporary:
        part = Path(temporary)
        _run_command(program, ["apt-get", "download", package], part)
        packages = list(part.glob(f"{package}_*.deb"))
        if len(packages) != 1:
            raise Unavailable(f"'apt-get download {package}' left {len(packages)} packages; install {program}")
        _run_command(program, ["dpkg", "-x", str(packages[0]), str(part / "root")], part)
        if not (part / "root" / "usr" / "bin" / package).exists():
            raise Unavailable(f"{packages[0].name} holds no usr/bin/{package}; install {program}")
        try:
            (part / "root").rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise


def _run_command(program: str, command: list[str], folder: Path) -> None:
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{program} is not on the PATH, and '{' '.join(command)}' hung") from error
    if result.returncode:
        raise Unavailable(
            f"{program} is not on the PATH, and '{' '.join(command)}' failed: {result.stderr.strip()[-400:]}; "
            f"install {program}, or let apt know its packages (apt-get update)"
        )


@dataclass(slots=True)
class Prometheus(Managed):
    """One Prometheus server.

    Attributes:
        state_dir: Folder of its configuration, data and log.
        targets: `host:port` addresses to scrape, all under the job `millrace`.
        rules: Files with recording and alert rules.
        interval: Seconds between two scrapes.
        config: A whole configuration instead of the one made of the fields above.
        port: Port when it is free; None for any port.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    targets: Sequence[str] = ()
    rules: Sequence[Path] = ()
    interval: float = 1.0
    config: Mapping[str, Any] | None = None
    port: int | None = DEFAULT_PORT
    detached: bool = False
    start_timeout: float = 60.0
    say: Say = drop_line

    @property
    def url(self) -> str:
        """Root of its web interface, without a slash at the end; known before the start."""
        _ = self.service
        return f"http://{LOOPBACK}:{self.port}"

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Evaluate an expression now: label sets with their values. Blocks.

        Raises:
            StackError: Prometheus refused the expression.
            OSError: Prometheus did not answer.
        """
        status, body = self.get(f"query?query={urllib.parse.quote(expression)}")
        if status != 200:
            raise StackError(f"Prometheus at {self.url} refused '{expression}': {body}")
        return [(sample["metric"], float(sample["value"][1])) for sample in body["data"]["result"]]

    def get(self, path: str) -> tuple[int, Any]:
        """Status and body of a call to its API, the path counted from `/api/v1/`. Blocks."""
        return send_request("GET", f"{self.url}/api/v1/{path}")

    def _prepare(self) -> Service:
        binary = find_prometheus(self.say) / "prometheus"
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        config = self.config or {
            "global": {
                "scrape_interval": _format_duration(self.interval),
                "evaluation_interval": _format_duration(self.interval),
            },
            # Prometheus reads the file again when it changes; without it, alerts are shown and sent nowhere.
            "alerting": {"alertmanagers": [{"file_sd_configs": [{"files": [str(folder / _ALERTMANAGERS)]}]}]},
            "rule_files": [str(path.absolute()) for path in self.rules],
            "scrape_configs": [{"job_name": "millrace", "static_configs": [{"targets": list(self.targets)}]}],
        }
        path = folder / "prometheus.yml"
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")  # JSON is YAML too
        return Service(
            name=f"Prometheus ({LOOPBACK}:{self.port})",
            command=[
                str(binary),
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self.port}",
            ],
            log_path=folder / "prometheus.log",
            ready=lambda: is_answering(f"http://{LOOPBACK}:{self.port}/-/ready"),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )


def _format_duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"
