"""Unpacks archives of the cache once, for services that need a folder instead of a jar."""

import shutil
import tarfile
import tempfile
from pathlib import Path

from compose.local.errors import StackError


def unpack_tar(archive: Path, folder: Path) -> Path:
    """Unpack a tar archive into a folder that does not exist yet, and return it. Blocks.

    The folder appears whole or not at all, so that several processes may ask for it at once.

    Raises:
        StackError: The archive is damaged or there is no room.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(part, filter="data")
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster, with the same content
                raise
    except (OSError, tarfile.TarError) as error:
        raise StackError(
            f"{archive} could not be unpacked into {folder}: {error}; remove {archive} and call again, "
            "or name a folder with more room in MILLRACE_CACHE"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder
