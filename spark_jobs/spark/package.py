"""Our packages as one zip, for machines that do not have them: Spark gives it to the Python workers of executors."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from connectors.entry_points import DISTRIBUTION
from worker.fetch.paths import cache_dir

PACKAGES: Final = ("spark_jobs", "connectors", "offsets", "worker")
#: A time for all members, so that the same files make the same zip.
_TIME: Final = (2020, 1, 1, 0, 0, 0)
_LEFT_OUT: Final = ("__pycache__",)


def find_package_root() -> Path:
    """The folder that holds our packages."""
    return Path(__file__).resolve().parents[2]


def zip_bytes(folder: Path | None = None) -> bytes:
    """The zip: Python files and data of ``PACKAGES``, and the entry points. The same files give the same bytes."""
    base = find_package_root() if folder is None else folder
    installed = distribution(DISTRIBUTION)
    described = {
        "METADATA": f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {installed.version}\n",
        "entry_points.txt": installed.read_text("entry_points.txt") or "",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted((base / package).rglob("*")):
                if path.is_file() and not set(path.parts) & set(_LEFT_OUT):
                    archive.writestr(_make_zip_member(path.relative_to(base).as_posix()), path.read_bytes())
        for name, content in described.items():
            archive.writestr(_make_zip_member(f"{DISTRIBUTION}-{installed.version}.dist-info/{name}"), content)
    return buffer.getvalue()


def _make_zip_member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def build_zip(folder: Path | None = None) -> Path:
    """The zip as a file in ``folder`` (default: the cache folder), named by its content; made if it is not there. Blocks."""
    data = zip_bytes()
    where = cache_dir() / "jobs" if folder is None else folder
    path = where / f"millrace-{hashlib.sha256(data).hexdigest()[:12]}.zip"
    if not path.is_file():
        where.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(data)
        part.replace(path)
    return path
