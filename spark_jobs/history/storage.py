"""Files of one table, by names relative to its directory: through Hadoop's FileSystem, or by Python alone where it is local.

The log needs one thing that file systems differ in: *make this file with this content unless the name is taken, atomically*.
Local: a hard link (``link(2)`` fails on a taken name; a rename would replace it). HDFS, viewfs, ABFS: FileContext's rename
without OVERWRITE. Object stores (S3A, GCS): a create that refuses at close when the name is taken (conditional put).
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from urllib.parse import unquote

from connectors.errors import Retriable
from spark_jobs.spark.gateway import gateway_of, java_session, jvm_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

#: Schemes whose create is conditional and whose rename is a copy.
_OBJECT_STORES: Final = frozenset({"s3a", "s3", "gs"})


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One file: its name relative to the root, its length in bytes, when it was last changed (ms since 1970)."""

    name: str
    size: int
    modified: int


class Storage(Protocol):
    """The calls of a file system that a table needs. All names are relative to ``root``, with ``/``; every call blocks.

    Raises (all calls):
        Retriable: the file system can't be reached or refuses for now.
    """

    root: str

    def read(self, name: str) -> bytes | None:
        """The content, or None where there is no such file."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Makes the file with all its content, or returns False where the name is taken. Atomic."""

    def replace(self, name: str, data: bytes) -> None:
        """Makes or replaces a file; readers see the old or the new content (object stores too)."""

    def rename(self, source: str, target: str) -> bool:
        """Moves a file; parents are made. False where the source is gone or the target is there."""

    def copy(self, source: str, target: str) -> None:
        """Copies a file, byte by byte; replaces ``target``. Raises ``FileNotFoundError`` where there is no source."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or directory."""

    def delete(self, name: str, *, recursive: bool = False) -> bool:
        """Deletes a file, an empty directory, or (recursive) all below; False where nothing was deleted."""

    def names(self, directory: str) -> list[FileStatus]:
        """The files directly in ``directory``; none where it is missing."""

    def directories(self, directory: str) -> list[str]:
        """Names (last part) of the directories directly in ``directory``."""

    def walk(self, directory: str) -> list[FileStatus]:
        """All files below ``directory``; none where it is missing. Not meant for whole tables."""

    def uri(self, name: str) -> str:
        """The full address of ``name``, as Spark takes it."""


class LocalStorage:
    """``Storage`` without a JVM, for a local directory: tools and readers in plain Python."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self.root = str(root)

    def read(self, name: str) -> bytes | None:
        """See ``Storage``."""
        try:
            return (self._root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See ``Storage``."""
        part = self._write_part(name, data)
        try:
            os.link(part, self._root / name)
        except FileExistsError:
            return False
        finally:
            part.unlink()
        return True

    def replace(self, name: str, data: bytes) -> None:
        """See ``Storage``."""
        self._write_part(name, data).replace(self._root / name)

    def _write_part(self, name: str, data: bytes) -> Path:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.parent / f".{target.name}.{uuid.uuid4().hex}"
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return part

    def rename(self, source: str, target: str) -> bool:
        """See ``Storage``."""
        to = self._root / target
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._root / source, to)
        except (FileExistsError, FileNotFoundError):
            return False
        (self._root / source).unlink(missing_ok=True)
        return True

    def copy(self, source: str, target: str) -> None:
        """See ``Storage``."""
        to = self._root / target
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._root / source, to)

    def exists(self, name: str) -> bool:
        """See ``Storage``."""
        return (self._root / name).exists()

    def delete(self, name: str, *, recursive: bool = False) -> bool:
        """See ``Storage``."""
        path = self._root / name
        try:
            if not path.is_dir():
                path.unlink()
            elif recursive:
                shutil.rmtree(path)
            else:
                path.rmdir()
        except OSError:
            return False
        return True

    def names(self, directory: str) -> list[FileStatus]:
        """See ``Storage``."""
        return list(self._iter_files(directory, deep=False))

    def directories(self, directory: str) -> list[str]:
        """See ``Storage``."""
        path = self._root / directory
        return sorted(entry.name for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []

    def walk(self, directory: str) -> list[FileStatus]:
        """See ``Storage``."""
        return list(self._iter_files(directory, deep=True))

    def _iter_files(self, directory: str, *, deep: bool) -> Iterator[FileStatus]:
        path = self._root / directory
        for file in sorted(path.rglob("*") if deep else path.iterdir()) if path.is_dir() else ():
            if file.is_file():
                try:
                    stat = file.stat()
                except FileNotFoundError:
                    continue  # another writer's temporary file, renamed since it was listed
                yield FileStatus(file.relative_to(self._root).as_posix(), stat.st_size, int(stat.st_mtime * 1000))

    def uri(self, name: str) -> str:
        """See ``Storage``."""
        return str(self._root / name) if name else str(self._root)


class HadoopStorage:
    """``Storage`` on any file system that Hadoop knows, through the session's JVM (py4j), with the session's settings."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        jvm: Any = jvm_of(spark)
        # Each name on the way to a class is a call into the JVM.
        self._new_path: Any = jvm.org.apache.hadoop.fs.Path
        self._to_bytes: Any = jvm.org.apache.commons.io.IOUtils.toByteArray
        self._file_context: Any = jvm.org.apache.hadoop.fs.FileContext
        self._file_util: Any = jvm.org.apache.hadoop.fs.FileUtil
        self._files: Any = jvm.java.nio.file.Files
        self._paths: Any = jvm.java.nio.file.Paths
        gateway: Any = gateway_of(spark)
        self._conf: Any = java_session(spark).sessionState().newHadoopConf()
        with _translated(f"open {root}"):
            path = self._new_path(root)
            self._fs: Any = path.getFileSystem(self._conf)
            self._root: Any = self._fs.makeQualified(path)
            self.root = str(self._root.toString())
            target = self._resolve_root()
        self._scheme = str(target.toUri().getScheme())
        #: Checksum files next to each log entry are of no use.
        self._plain = (
            self._fs.getRawFileSystem()
            if hasattr(self._fs, "getRawFileSystem")
            and self._scheme == "file"
            and str(self._root.toUri().getScheme()) == "file"
            else self._fs
        )
        rename = getattr(jvm.org.apache.hadoop.fs, "Options$Rename")
        self._none = gateway.new_array(rename, 1)
        self._none[0] = rename.NONE
        self._overwrite = gateway.new_array(rename, 1)
        self._overwrite[0] = rename.OVERWRITE

    def _resolve_root(self) -> Any:
        """The root behind mount tables (viewfs), by its nearest parent that exists."""
        path = self._root
        while path is not None:
            if self._fs.exists(path):
                return self._fs.resolvePath(path)
            path = path.getParent()
        return self._root

    def _to_path(self, name: str) -> Any:
        return self._new_path(self._root, name) if name else self._root

    def _open_context(self) -> Any:
        return self._file_context.getFileContext(self._root.toUri(), self._conf)

    def read(self, name: str) -> bytes | None:
        """See ``Storage``."""
        with _translated(f"read {self.uri(name)}") as outcome:
            stream = self._plain.open(self._to_path(name))
            try:
                return bytes(self._to_bytes(stream))
            finally:
                stream.close()
        if outcome.missing:
            return None
        raise AssertionError("unreachable")

    def _write_file(self, path: Any, data: bytes) -> None:
        stream = self._plain.create(path, True)
        try:
            stream.write(bytearray(data))
            if hasattr(stream, "hsync"):
                stream.hsync()
        finally:
            stream.close()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See ``Storage``."""
        path = self._to_path(name)
        if self._scheme in _OBJECT_STORES:
            return self._create_file(path, data)
        part = self._new_path(path.getParent(), f".{path.getName()}.{uuid.uuid4().hex}")
        with _translated(f"write {self.uri(name)}"):
            self._write_file(part, data)
        try:
            with _translated(f"commit {self.uri(name)}") as outcome:
                if self._scheme == "file":
                    self._link_file(part, path)
                else:
                    self._open_context().rename(part, path, self._none)
                return True
            return not outcome.name_taken
        finally:
            self._plain.delete(part, False)

    def _create_file(self, path: Any, data: bytes) -> bool:
        with _translated(f"commit {path.toString()}", conditional=True) as outcome:
            stream = (
                self._fs.createFile(path).overwrite(False).opt("fs.option.create.conditional.overwrite", True).build()
            )
            stream.write(bytearray(data))
            stream.close()
            return True
        return not outcome.name_taken

    def _link_file(self, source: Any, target: Any) -> None:
        local = self._fs.resolvePath(source).toUri()
        # The parent exists: the part was written into it.
        parent = self._fs.resolvePath(target.getParent())
        final = self._new_path(parent, target.getName()).toUri()
        self._files.createLink(self._paths.get(final), self._paths.get(local))

    def replace(self, name: str, data: bytes) -> None:
        """See ``Storage``."""
        path = self._to_path(name)
        with _translated(f"write {self.uri(name)}"):
            if self._scheme in _OBJECT_STORES:
                self._write_file(path, data)
                return
            part = self._new_path(path.getParent(), f".{path.getName()}.{uuid.uuid4().hex}")
            self._write_file(part, data)
            self._open_context().rename(part, path, self._overwrite)

    def rename(self, source: str, target: str) -> bool:
        """See ``Storage``."""
        old, new = self._to_path(source), self._to_path(target)
        with _translated(f"rename {self.uri(source)} to {target}") as outcome:
            if self._fs.exists(new) or not self._fs.exists(old):
                return False
            self._fs.mkdirs(new.getParent())
            return bool(self._fs.rename(old, new))
        return not (outcome.missing or outcome.name_taken)

    def copy(self, source: str, target: str) -> None:
        """See ``Storage``."""
        with _translated(f"copy {self.uri(source)}") as outcome:
            self._file_util.copy(
                self._fs, self._to_path(source), self._fs, self._to_path(target), False, True, self._conf
            )
        if outcome.missing:
            raise FileNotFoundError(self.uri(source))

    def exists(self, name: str) -> bool:
        """See ``Storage``."""
        with _translated(f"look for {self.uri(name)}"):
            return bool(self._fs.exists(self._to_path(name)))
        return False

    def delete(self, name: str, *, recursive: bool = False) -> bool:
        """See ``Storage``."""
        path = self._to_path(name)
        with _translated(f"delete {self.uri(name)}"):
            if (
                not recursive
                and self._fs.exists(path)
                and self._fs.getFileStatus(path).isDirectory()
                and len(self._fs.listStatus(path)) > 0
            ):
                return False
            return bool(self._fs.delete(path, recursive))
        return False

    def names(self, directory: str) -> list[FileStatus]:
        """See ``Storage``."""
        return [self._to_status(status) for status in self._list_directory(directory) if status.isFile()]

    def directories(self, directory: str) -> list[str]:
        """See ``Storage``."""
        return sorted(
            str(status.getPath().getName()) for status in self._list_directory(directory) if status.isDirectory()
        )

    def walk(self, directory: str) -> list[FileStatus]:
        """See ``Storage``."""
        statuses: list[FileStatus] = []
        with _translated(f"list {self.uri(directory)}"):
            files = self._fs.listFiles(self._to_path(directory), True)
            while files.hasNext():
                statuses.append(self._to_status(files.next()))
        return statuses

    def _list_directory(self, directory: str) -> list[Any]:
        with _translated(f"list {self.uri(directory)}"):
            return list(self._plain.listStatus(self._to_path(directory)))
        return []

    def _to_status(self, status: Any) -> FileStatus:
        # Both sides decoded alike; the path of a status may lack the authority of the root.
        whole = unquote(str(status.getPath().toUri().getRawPath()))
        prefix = unquote(str(self._root.toUri().getRawPath())).rstrip("/") + "/"
        return FileStatus(whole.removeprefix(prefix), int(status.getLen()), int(status.getModificationTime()))

    def uri(self, name: str) -> str:
        """See ``Storage``."""
        return f"{self.root}/{name}" if name else self.root


@dataclass(slots=True)
class _translated:  # noqa: N801 - used as a statement
    """Turns Java's complaints into ours: missing and taken names are answers, other I/O errors are ``Retriable``."""

    action: str
    missing: bool = False
    name_taken: bool = False
    #: Whether it is a create that the server refuses where the name is taken, which S3A calls a remote change (status 412).
    conditional: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        java = getattr(error, "java_exception", None)
        if error is None or java is None:
            return False
        name = str(java.getClass().getName())
        if name.endswith(("FileNotFoundException", "NoSuchFileException")):
            self.missing = True
            return True
        refused = self.conditional and name.endswith("RemoteFileChangedException")
        if refused or name.endswith(("FileAlreadyExistsException", "PathExistsException")):
            self.name_taken = True
            return True
        if name.endswith(("AccessControlException", "AccessDeniedException", "UnsupportedFileSystemException")):
            return False
        if is_io_error(java):
            raise Retriable(f"could not {self.action}: {name}: {java.getMessage()}") from error
        return False


def is_io_error(java: Any) -> bool:
    """Whether a Java exception is an ``IOException`` of any kind."""
    kind = java.getClass()
    while kind is not None:
        if str(kind.getName()) == "java.io.IOException":
            return True
        kind = kind.getSuperclass()
    return False


def open_storage(spark: SparkSession | None, root: str) -> Storage:
    """Hadoop's view of ``root`` where there is a session, else plain Python's."""
    return LocalStorage(root.removeprefix("file://")) if spark is None else HadoopStorage(spark, root)
