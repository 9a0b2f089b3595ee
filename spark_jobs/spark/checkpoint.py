"""Files of a job's checkpoint, on a local disk or on any file system that Hadoop knows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from spark_jobs.spark.gateway import hadoop_configuration, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Which class of Spark's writes a checkpoint.
_WRITER: Final = "spark.sql.streaming.checkpointFileManagerClass"
#: Writes by Java alone. Spark's usual one starts processes of the shell for each file (chmod, readlink).
_LOCAL_WRITER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def local_path(location: str) -> Path | None:
    """The folder that ``location`` names on this machine; None if it is on another file system."""
    parts = urlsplit(location)
    if not parts.scheme:
        return Path(location).absolute()
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def spark_path(location: str) -> str:
    """``location`` as Spark takes it: a folder of this machine stays one, whatever the default file system is."""
    local = local_path(location)
    return location.rstrip("/") if local is None else local.as_uri()


class LocalFolder:
    """A checkpoint on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> str | None:
        """The text of a file; None if it does not exist."""
        try:
            return (self.folder / name).read_text("utf-8")
        except FileNotFoundError:
            return None

    def list(self, name: str) -> list[str]:
        """Names of the files in a folder; empty if it does not exist."""
        try:
            return [entry.name for entry in (self.folder / name).iterdir()]
        except FileNotFoundError:
            return []

    def write(self, name: str, content: str) -> None:
        """Write a file as a whole: readers see the old or the new one."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        with part.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    def create(self, name: str, content: str) -> bool:
        """Write a file unless there is one; says whether it did."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def delete(self, name: str) -> None:
        """Remove a file if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    def remove(self, name: str = "") -> None:
        """Remove a folder with all that is in it, if it is there; without a name the whole."""
        shutil.rmtree(self.folder / name, ignore_errors=True)


class HadoopFolder:
    """A checkpoint on a file system that Spark's JVM reaches. All calls block."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm = jvm_of(spark)
        self._root = self._jvm.org.apache.hadoop.fs.Path(location)
        self._fs = self._root.getFileSystem(hadoop_configuration(spark))

    def _to_path(self, name: str) -> Any:
        # Hadoop makes no path of an empty name.
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def read(self, name: str) -> str | None:
        """As ``LocalFolder.read``."""
        path = self._to_path(name)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def list(self, name: str) -> list[str]:
        """As ``LocalFolder.list``."""
        path = self._to_path(name)
        return [status.getPath().getName() for status in self._fs.listStatus(path)] if self._fs.exists(path) else []

    def write(self, name: str, content: str) -> None:
        """As ``LocalFolder.write``, as far as the file system's own overwrite is atomic."""
        self._put_file(name, content, overwrite=True)

    def create(self, name: str, content: str) -> bool:
        """As ``LocalFolder.create``; on object stores two writers may both get True: read it back."""
        from py4j.protocol import Py4JJavaError

        try:
            self._put_file(name, content, overwrite=False)
        except Py4JJavaError as error:
            if "AlreadyExists" in error.java_exception.getClass().getName():
                return False
            raise
        return True

    def delete(self, name: str) -> None:
        """As ``LocalFolder.delete``."""
        self._fs.delete(self._to_path(name), False)

    def remove(self, name: str = "") -> None:
        """As ``LocalFolder.remove``."""
        self._fs.delete(self._to_path(name), True)

    def _put_file(self, name: str, content: str, *, overwrite: bool) -> None:
        stream = self._fs.create(self._to_path(name), overwrite)
        try:
            stream.write(bytearray(content, "utf-8"))
        finally:
            stream.close()


Folder = LocalFolder | HadoopFolder


def open_folder(location: str, spark: SparkSession) -> Folder:
    """The checkpoint's files."""
    local = local_path(location)
    return HadoopFolder(spark, location) if local is None else LocalFolder(local)


def write_directly(spark: SparkSession) -> None:
    """Have Spark write the checkpoints of this session, which are on this machine, without processes of the shell.

    Both ways write a file of another name and rename it. This one looks for a file of the name before, instead of in the
    rename, which the checkpoint's lock (``control.lock_job``) makes the same.
    """
    if spark.conf.get(_WRITER, None) is None:
        spark.conf.set(_WRITER, _LOCAL_WRITER)


def open_local(location: str) -> Folder | None:
    """The checkpoint's files without Spark; None if they are not on this machine."""
    local = local_path(location)
    return None if local is None else LocalFolder(local)
