"""A stand-in for MongoDB: FerretDB, which speaks its protocol and keeps documents in SQLite. No registry has MongoDB's server.

It is built once, from the Go module proxy, with the versions of `ferretdb/go.sum`. It has no logins, no transactions and no
expiry of documents.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

from compose.local.errors import Unavailable
from compose.local.paths import cache_dir
from compose.local.ports import LOOPBACK, accepts, free_port
from compose.local.service import Managed, Service

_SOURCE = Path(__file__).with_name("ferretdb")


def find_ferretdb() -> Path:
    """The program, built once: a minute or two. Blocks.

    Raises:
        Unavailable: Go is missing, or it can't build the program.
    """
    files = sorted(_SOURCE.iterdir())
    folder = cache_dir() / "ferretdb" / sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    program = folder / "ferretdb"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise Unavailable("MongoDB's stand-in (FerretDB) is built by Go, and there is no go on the PATH")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as temporary:
        source = Path(temporary) / "source"
        shutil.copytree(_SOURCE, source)
        build = [go, "build", "-mod=readonly", "-trimpath", "-o", "ferretdb", "."]
        result = subprocess.run(build, cwd=source, capture_output=True, text=True, check=False)
        if result.returncode:
            raise Unavailable(f"FerretDB could not be built: {result.stderr.strip()[-400:]}")
        folder.mkdir(exist_ok=True)
        (source / "ferretdb").replace(program)
    return program


@dataclass(slots=True)
class FerretDb(Managed):
    """One server on the loopback address; what is in its folder is used again.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port when it is free; None for any port.
    """

    state_dir: Path
    port: int | None = None
    _service: Service | None = field(default=None, init=False)

    @property
    def service(self) -> Service:
        """The process; prepared (build, port) on first use, not started.

        Raises:
            Unavailable: it can't be built here.
        """
        if self._service is None:
            program = find_ferretdb()
            self.port = free_port(self.port)
            data = self.state_dir.absolute() / "data"
            data.mkdir(parents=True, exist_ok=True)
            self._service = Service(
                name=f"FerretDB ({LOOPBACK}:{self.port})",
                command=[str(program), f"{LOOPBACK}:{self.port}", str(data)],
                log_path=self.state_dir.absolute() / "ferretdb.log",
                ready=partial(accepts, self.port),
            )
        return self._service
