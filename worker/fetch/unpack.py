"""Unpacks archives of the cache once, for services that need a folder instead of a jar."""

import lzma
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from worker.fetch.errors import StackError


def unpack_tar(archive: Path, folder: Path) -> Path:
    """Unpack a tar archive into a folder that does not exist yet, and return it. Blocks.

    The folder appears whole or not at all, so that several processes may ask for it at once.

    Raises:
        StackError: The archive is damaged or there is no room.
    """

    def fill(part: Path) -> None:
        with tarfile.open(archive) as tar:
            tar.extractall(part, filter="data")

    return _unpack_once(archive, folder, fill)


def unpack_tar_in_jar(archive: Path, member: str, folder: Path) -> Path:
    """Like `unpack_tar` for the tar archive that a jar holds under the name `member`. Blocks.

    Raises:
        StackError: An archive is damaged, the jar has no such member, or there is no room.
    """

    def fill(part: Path) -> None:
        with zipfile.ZipFile(archive) as jar, jar.open(member) as inner, tarfile.open(fileobj=inner) as tar:
            tar.extractall(part, filter="data")

    return _unpack_once(archive, folder, fill)


def unpack_jar(archive: Path, prefix: str, folder: Path, executable: tuple[str, ...] = ()) -> Path:
    """Like `unpack_tar` for the files of a jar under `prefix` (which ends with a slash and is left off). Blocks.

    A jar keeps no modes: files in the folders named by `executable` may be run afterwards.

    Raises:
        StackError: The jar is damaged or there is no room.
    """

    def fill(part: Path) -> None:
        with zipfile.ZipFile(archive) as jar:
            for info in jar.infolist():
                if not info.filename.startswith(prefix) or info.is_dir():
                    continue
                target = (part / info.filename[len(prefix) :]).resolve()
                if not target.is_relative_to(part.resolve()):
                    raise OSError(f"{info.filename} lies outside of the archive's folder")
                target.parent.mkdir(parents=True, exist_ok=True)
                with jar.open(info) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                if target.parent.name in executable:
                    target.chmod(0o755)

    return _unpack_once(archive, folder, fill)


def _unpack_once(archive: Path, folder: Path, fill: Callable[[Path], None]) -> Path:
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        fill(part)
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster, with the same content
                raise
    except (OSError, KeyError, tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError) as error:
        raise StackError(
            f"{archive} could not be unpacked into {folder}: {error}; remove {archive} and call again, "
            "or name a folder with more room in MILLRACE_CACHE"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder
