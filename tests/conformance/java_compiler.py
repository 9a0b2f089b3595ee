"""Compiles the Java of tests and benchmarks: with the JDK's compiler, or with Eclipse's where there is only a runtime."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.fetch.java import Java

_RELEASE = "17"


def compiled(java: Java, source: Path, classpath: Sequence[Path], resources: Mapping[str, str] | None = None) -> Path:
    """The folder with the classes of one source file; from the cache if the same was compiled before. Blocks.

    Args:
        java: the runtime that will run them.
        source: the file.
        classpath: jars it is compiled against.
        resources: further files of the folder, by path (``META-INF/services/...``).

    Raises:
        StackError: it doesn't compile; or there is no compiler and none could be brought.
    """
    files = resources or {}
    named = "\n".join(
        [source.read_text(encoding="utf-8"), *(path.name for path in classpath), *map(str, files.items())]
    )
    folder = cache_dir() / "test-classes" / hashlib.sha256(named.encode()).hexdigest()[:20]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as temporary:
        classes = Path(temporary) / "classes"
        classes.mkdir()
        done = subprocess.run(
            [*_compiler(java), "-proc:none", "-d", str(classes), "-cp", ":".join(map(str, classpath)), str(source)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise StackError(f"{source} does not compile:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        for name, text in files.items():
            path = classes / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        try:
            classes.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster, with the same content
                raise
    return folder


def _compiler(java: Java) -> list[str]:
    javac = java.home / "bin" / "javac"
    if javac.exists():
        return [str(javac), "--release", _RELEASE]
    jars = ArtifactResolver().fetch(load_manifest().members("ecj"), "Eclipse's Java compiler")
    return [str(java.executable), "-jar", str(jars[0]), f"-{_RELEASE}", "-nowarn"]
