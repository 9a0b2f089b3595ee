"""Programs from Debian's packages, unpacked into the cache without root: for optional servers that no Maven repository has."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.fetch.errors import StackError, Unavailable
from worker.fetch.paths import cache_dir
from worker.terminal import Say, drop_line, progress

_MIRROR = "http://deb.debian.org/debian"
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TOOLS = ("apt-get", "apt-cache", "dpkg-deb")
#: Folders of libraries that belong to one program, in `usr/lib`.
_PRIVATE = ("mysql*/private", "syslog-ng")
_LOADERS = ("usr/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2")


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A tree of packages.

    Attributes:
        root: Its folder: what would be `/`.
        version: The version of the package that was asked for.
    """

    root: Path
    version: str

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command that runs one of its programs (`usr/sbin/mysqld`) with its own C library, not the machine's.

        Raises:
            Unavailable: The tree has no loader for this machine.
        """
        loader = next((self.root / name for name in _LOADERS if (self.root / name).exists()), None)
        if loader is None:
            raise Unavailable(f"{self.root} has no C library for x86_64; remove the folder and call again")
        libraries = [
            self.root / "usr/lib/x86_64-linux-gnu",
            self.root / "lib/x86_64-linux-gnu",
            *sorted(path for name in _PRIVATE for path in (self.root / "usr/lib").glob(name) if path.is_dir()),
        ]
        return [
            str(loader),
            "--library-path",
            ":".join(str(library) for library in libraries),
            str(self.root / program),
            *arguments,
        ]


def unpack_package(package: str, suite: str, say: Say = drop_line, extras: Sequence[str] = ()) -> Unpacked:
    """A package of a Debian suite with all that it needs, downloaded by apt (which verifies it) and unpacked once. Blocks.

    Args:
        package: Its name.
        suite: The name of Debian's release.
        say: Where to report progress.
        extras: More packages for the same tree, such as plugins of its program.

    Raises:
        Unavailable: This is no Debian, or its packages can't be reached.
        StackError: The packages can't be unpacked.
    """
    folder = cache_dir() / "debian" / "-".join((suite, package, *extras))
    done = folder / "version"
    if not done.exists():
        _download_package(package, extras, suite, folder, say)
    return Unpacked(folder / "root", done.read_text(encoding="utf-8").strip())


def _download_package(package: str, extras: Sequence[str], suite: str, folder: Path, say: Say) -> None:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing or not _KEYS.exists():
        raise Unavailable(
            f"{package} comes from Debian's packages, and this machine lacks {', '.join(missing) or _KEYS}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        for name in ("lists/partial", "cache/archives/partial", "root"):
            (part / name).mkdir(parents=True)
        (part / "status").touch()  # as if nothing were installed: the C library has to come too
        (part / "sources.list").write_text(f"deb [signed-by={_KEYS}] {_MIRROR} {suite} main\n", encoding="utf-8")
        options = [
            f"-oDir::{name}={part / value}"
            for name, value in (
                ("Etc::sourcelist", "sources.list"),
                ("Etc::sourceparts", "none"),
                ("State::lists", "lists"),
                ("State::status", "status"),
                ("Cache", "cache"),
            )
        ]
        options += ["-oAPT::Architecture=amd64", "-oDebug::NoLocking=true", "-oAPT::Sandbox::User=", "-q", "-y"]
        with progress(f"downloading {package} of Debian {suite} and what it needs", say):
            _run_command(["apt-get", *options, "update"])
            _run_command(
                ["apt-get", *options, "--no-install-recommends", "--download-only", "install", package, *extras]
            )
        policy = _run_command(["apt-cache", *options[:-2], "policy", package])
        candidate = re.search(r"Candidate: (\S+)", policy)
        for archive in sorted((part / "cache/archives").glob("*.deb")):
            _run_command(["dpkg-deb", "-x", str(archive), str(part / "root")])
        for name in ("lists", "cache"):
            shutil.rmtree(part / name)
        (part / "version").write_text(candidate[1] if candidate else "unknown", encoding="utf-8")
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError as error:
            if not (folder / "version").exists():  # else another process was faster
                raise StackError(
                    f"{part} could not become {folder}: {error}; remove {folder} and call again"
                ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run_command(command: Sequence[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"})  # fmt: skip
    if result.returncode:
        tail = (result.stderr + result.stdout).strip()[-600:]
        raise Unavailable(f"{command[0]} could not bring Debian's packages: {tail}; check the network (http_proxy)")
    return result.stdout
