"""``source.type=files``: files that appear in a folder, each read once. Spark's file stream source finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from connectors.errors import Fatal, Retriable
from spark_jobs.inputs.contract import Input, InputBatch
from spark_jobs.inputs.files import options
from spark_jobs.inputs.files.letters import FileLetters
from spark_jobs.inputs.files.listing import HEADERS, list_files
from spark_jobs.inputs.files.log import batch_files, log_files
from spark_jobs.inputs.files.positions import number_files
from spark_jobs.inputs.files.reading import (
    CORRUPT,
    EXTRA_COLUMNS,
    LINE,
    MODIFIED,
    NUMBER,
    PATH,
    ROW,
    SETTINGS,
    FileRowReader,
)
from spark_jobs.inputs.files.rows import declared_types
from spark_jobs.inputs.positions import position_after, position_file, save_position
from spark_jobs.json_options import WHOLE
from spark_jobs.reports import troubles
from spark_jobs.spark.frames import get_column
from spark_jobs.spark.gateway import hadoop_configuration, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.contract import JobContext
    from spark_jobs.inputs.contract import InputRun
    from spark_jobs.kafka.ranges import Offsets
    from spark_jobs.spark.checkpoint import Folder


class FilesInput(Input):
    """Reads files. ``rows`` are those of the batch, taken apart as far as the format does it."""

    rows: DataFrame

    def __init__(self, run: InputRun) -> None:
        super().__init__(run)
        self.namespace = str(run.config[options.NAMESPACE])
        self.kind = str(run.config[options.FORMAT])
        names = list(declared_types(run.config, self.namespace))
        self._reader = FileRowReader.of(run.spark, self.kind, run.config, names)
        self._settings: dict[str, str | None] = {}

    def position(self, batch: int) -> Offsets:
        """See ``Input.position``."""
        return position_after(self.run.folder, batch)

    @classmethod
    def position_files(cls, folder: Folder, batch: int) -> list[str]:
        """See ``Input.position_files``: the names of the files that were read, and the number of the last row."""
        return [*log_files(folder, batch), position_file(batch)]

    def demand(self) -> None:
        """Whether there is a folder or a file at the path."""
        path = str(self.run.config[options.PATH])
        if not _is_path(self.run.spark, path):
            raise (Fatal if self.run.job.available_now else Retriable)(
                f"{options.PATH}: there is nothing at {path}; correct it, or make the folder"
            )

    def prepare(self, context: JobContext) -> None:
        """See ``Input.prepare``."""
        spark = self.run.spark
        for name, value in SETTINGS.items():
            self._settings[name] = spark.conf.get(name, None)
            spark.conf.set(name, value)
        context.input = self
        self._letters = FileLetters.from_config(context.name, context.config, context.spark.sparkContext.accumulator(0))
        context.dead_letters = self._letters
        self._metrics = context.metrics

    def stream(self, spark: SparkSession) -> DataFrame:
        """The files as they appear, without their content."""
        config = self.run.config
        reader_options = {
            "maxFilesPerTrigger": str(config[options.MOST]),
            "recursiveFileLookup": str(config[options.RECURSIVE]).lower(),
        }
        if config[options.GLOB]:
            reader_options["pathGlobFilter"] = config[options.GLOB]
        return list_files(spark, str(config[options.PATH]), reader_options)

    def batch(self, frame: DataFrame, number: int) -> InputBatch:
        """See ``Input.batch``; blocks while it reads the batch's files once, to find those that can't be read.

        Raises:
            Fatal: a file can't be read, and bad files are not tolerated.
        """
        del frame  # it leaves out files that are gone
        listed = batch_files(self.run.folder, number)
        probes = self.run.retry(
            troubles.BATCH, lambda: self._reader.probe([file.path for file in listed]), batch=number
        )
        where = (self.namespace, 0)
        start = position_after(self.run.folder, number - 1).get(where, 0)
        files = number_files(listed, probes, start)
        self._letters.files = files.files
        bad = [file for file in files.files if file.error]
        with self._letters:
            for file in bad:
                self._letters.report_file(self.namespace, file)
        save_position(self.run.folder, number, {where: files.end})
        self._count_files(len(files.files), len(bad))
        good = files.good
        self.rows = self._reader.rows(good) if good else _no_rows(self.run.spark)
        first = files.files[0].first if files.files else start
        return InputBatch(self._build_raw_records(), {where: (first, files.end)}, {where: files.end}, files.rows)

    def _count_files(self, files: int, bad: int) -> None:
        for name, count in (("files_read_total", files - bad), ("files_bad_total", bad)):
            self._metrics[name] = self._metrics.get(name, 0.0) + count

    def _build_raw_records(self) -> DataFrame:
        """The rows as records of a topic with the table's name: lines as they are, others as JSON."""
        rows = self.rows
        names = [name for name in rows.columns if name not in EXTRA_COLUMNS]
        if self.kind in (options.JSON, options.TEXT):
            value = get_column(LINE) if names else f.lit(None).cast("string")
        else:
            value = f.to_json(f.struct(*map(get_column, names)), WHOLE) if names else f.lit(None).cast("string")
        if self.kind == options.JSON and names:
            rows = rows.where(f.length(f.trim(get_column(LINE))) > 0)
        return rows.select(
            f.lit(None).cast("binary").alias("key"),
            value.cast("binary").alias("value"),
            f.lit(None).cast(HEADERS).alias("headers"),
            f.lit(self.namespace).alias("topic"),
            f.lit(0).alias("partition"),
            get_column(NUMBER).alias("offset"),
            get_column(MODIFIED).alias("timestamp"),
        )

    def close(self) -> None:
        """See ``Input.close``: the session gets its settings back."""
        for name, value in self._settings.items():
            if value is None:
                self.run.spark.conf.unset(name)
            else:
                self.run.spark.conf.set(name, value)
        self._settings = {}


def _no_rows(spark: SparkSession) -> DataFrame:
    columns = f"{NUMBER} long, {MODIFIED} timestamp, {PATH} string, {ROW} long, {CORRUPT} string"
    return spark.createDataFrame([], columns)


def _is_path(spark: SparkSession, path: str) -> bool:
    """Whether something is at a path or matches it. Blocks."""
    jvm_path = jvm_of(spark).org.apache.hadoop.fs.Path(path)
    system = jvm_path.getFileSystem(hadoop_configuration(spark))
    statuses = system.globStatus(jvm_path)
    return statuses is not None and len(statuses) > 0
