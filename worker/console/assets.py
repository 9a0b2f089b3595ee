"""The console's files as they are sent: read once, compressed once."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.console.libraries import FILES, find_libraries
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STATIC: Final = Path(__file__).with_name("static")
PAGE: Final = "index.html"
#: Only the worker's own files, no script or style in a page, no page around it.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_MEDIA: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_LOGIN: Final = b"%LOGIN%"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file.

    Attributes:
        media: its content type.
        plain: its bytes.
        packed: the same, compressed with gzip.
        tag: its entity tag.
    """

    media: str
    plain: bytes
    packed: bytes
    tag: str


def build_asset(name: str, data: bytes) -> Asset:
    """A file from its name and bytes. Pure."""
    return Asset(
        _MEDIA[Path(name).suffix],
        data,
        gzip.compress(data, 9, mtime=0),
        f'"{hashlib.sha256(data).hexdigest()[:20]}"',
    )


class Assets:
    """All files, read when the first is asked for. Safe for several threads."""

    def __init__(self, ways: Sequence[str]) -> None:
        """Take what the login form offers: of basic and bearer."""
        self._ways = json.dumps(list(ways)).replace('"', "&quot;").encode()
        self._lock = threading.Lock()
        self._files: Mapping[str, Asset] | None = None

    def get(self, name: str) -> Asset | None:
        """A file, or None if no file has this name. Blocks: the first call reads all, and may fetch libraries.

        Raises:
            StackError: the libraries can't be fetched.
        """
        with self._lock:
            if self._files is None:
                self._files = self._read_files()
            return self._files.get(name)

    def _read_files(self) -> dict[str, Asset]:
        files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in _MEDIA}
        folder = find_libraries()
        try:
            files |= {name: (folder / name).read_bytes() for name in FILES}
        except OSError as error:
            raise StackError(f"{folder} lacks a library of the console ({error}); remove the folder") from error
        files[PAGE] = files[PAGE].replace(_LOGIN, self._ways)
        return {name: build_asset(name, data) for name, data in files.items()}
