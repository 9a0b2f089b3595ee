"""Files as frames: what is in a file, and its rows with their numbers. Everything here is Spark's own readers.

A file is never cut into parts, and each is a partition of its own: so the number that Spark counts within a partition is the
row's number in the file. The session must have ``SETTINGS`` for that.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.sql import functions as f
from pyspark.sql import types as t

from connectors.errors import Fatal, MillraceError
from spark_jobs.history.formats import CSV_READ, conform_frame
from spark_jobs.inputs.files.options import AVRO, CSV, HEADER, JSON, ORC, PARQUET, READER, TEXT
from spark_jobs.inputs.files.positions import FileProbe
from spark_jobs.spark.causes import cause_of, describe_error, java_causes
from spark_jobs.spark.frames import get_column, union_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from connectors.options import Config
    from spark_jobs.inputs.files.positions import BatchFile

_WHOLE: Final = str(1 << 46)
#: Of the session: no file is cut, none shares a partition with another one, and a missing or damaged one is an error.
SETTINGS: Final = {
    "spark.sql.files.maxPartitionBytes": _WHOLE,
    "spark.sql.files.openCostInBytes": _WHOLE,
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
#: Columns in addition to those of the file: the row's number, the time of its file, and its text where it can't be parsed.
NUMBER: Final = "millrace_number_"
MODIFIED: Final = "millrace_modified_"
CORRUPT: Final = "millrace_corrupt_"
#: Its file, and its place in it, from 1.
PATH: Final = "file_path_"
ROW: Final = "file_row_"
EXTRA_COLUMNS: Final = (NUMBER, MODIFIED, PATH, ROW, CORRUPT)
LINE: Final = "value"
#: Spark counts partitions in the bits above.
_ROW_MASK: Final = (1 << 33) - 1
_LINES: Final = (TEXT, JSON)
#: Of Spark's file formats the name of the one that gives lines as they are.
_TEXT: Final = "text"


#: Lines may end as they do anywhere.
_CSV_OPTIONS: Final = {name: value for name, value in CSV_READ.items() if name != "lineSep"}


class FileRowReader:
    """Reads the files of one job.

    Args:
        spark: the session.
        kind: the format.
        options: of Spark's reader.
        header: whether the first line of CSV names the columns.
        names: of columns of CSV without a header.
    """

    def __init__(
        self, spark: SparkSession, kind: str, options: Mapping[str, str], *, header: bool, names: Sequence[str] = ()
    ) -> None:
        self._spark = spark
        self.kind = kind
        self._options = {"__globPaths__": "false", **options}
        self._header = header
        self._names = tuple(names)

    @classmethod
    def of(cls, spark: SparkSession, kind: str, config: Config, names: Sequence[str]) -> FileRowReader:
        """As the options say."""
        return cls(spark, kind, dict(config.prefixed(READER)), header=bool(config[HEADER]), names=names)

    # Looking.

    def probe(self, paths: Sequence[str]) -> dict[str, FileProbe]:
        """Look into each of the files, by ``paths`` (percent-encoded). Blocks: reads them all once.

        Raises:
            MillraceError: the files are not the reason (the file system does not answer).
        """
        if len(paths) == 1 or self.kind != AVRO:
            try:
                return self._probe_files(paths)
            except Exception as error:
                if isinstance(cause_of(error), MillraceError):
                    raise cause_of(error) from error
                if len(paths) == 1:
                    return {paths[0]: FileProbe(error=_describe_fault(error))}
        # One at a time, to find out which of them can't be read; Avro's reader knows one schema.
        return {path: self.probe([path])[path] for path in paths}

    def _probe_files(self, paths: Sequence[str]) -> dict[str, FileProbe]:
        addresses = [unquote(path) for path in paths]
        if self.kind in (*_LINES, CSV):
            frame = self._load_frame(_TEXT, addresses, self._text_options())
            value: Column = f.when(f.col("row") == 0, f.col(LINE)) if self.kind == CSV else f.lit(None).cast("string")
            counts = (
                frame.select(LINE, _build_row_column().alias("row"), _build_path_column().alias("path"))
                .groupBy("path")
                .agg(f.count(f.lit(1)).alias("rows"), f.max(value).alias("header"))
            )
        else:
            frame = self._read_typed_columns(addresses)
            # All values are decoded, so that a damaged file shows here.
            decoded = f.xxhash64(*[get_column(field.name).cast("string") for field in frame.schema.fields])
            counts = (
                frame.select(decoded.alias("hash"), _build_path_column().alias("path"))
                .groupBy("path")
                .agg(f.count(f.lit(1)).alias("rows"), f.max("hash"), f.lit(None).cast("string").alias("header"))
            )
        rows = {row["path"]: row for row in counts.collect()}
        foreign = sorted(rows.keys() - set(paths))
        if foreign:
            raise Fatal(f"Spark read the file {foreign[0]}, which the batch does not have")
        return {path: self._read_probe(rows.get(path)) for path in paths}

    def _read_probe(self, row: t.Row | None) -> FileProbe:
        if row is None:
            return FileProbe()
        header = (row["header"] or "").removeprefix("\ufeff") if self.kind == CSV else ""
        rows = int(row["rows"]) - (1 if self.kind == CSV and self._header else 0)
        return FileProbe(rows, header, self._header_error(header) if self.kind == CSV else "")

    def _header_error(self, header: str) -> str:
        """Why the columns of a file of CSV can't be used; empty where they can."""
        names = self._csv_names(header)
        empty = next((number for number, name in enumerate(names, 1) if not name), 0)
        if empty:
            return f"the header has no name for column {empty}"
        twice = next((name for name in names if names.count(name) > 1), "")
        if twice:
            return f"the header names column {twice} twice"
        return _name_problem(names)

    # Reading.

    def rows(self, files: Sequence[BatchFile]) -> DataFrame:
        """The rows of ``files``: their own columns, then ``NUMBER``, ``MODIFIED``, ``PATH``, ``ROW`` and ``CORRUPT``; lazy.

        ``CORRUPT`` is null where the row can be taken apart.
        """
        frames = [self._number_rows(self._rows_of(group), group) for group in self._group_files(files)]
        fields: dict[str, t.StructField] = {}
        for frame in frames:
            for field in frame.schema.fields:
                fields.setdefault(field.name, field)
        shape = t.StructType(
            [field for name, field in fields.items() if name not in EXTRA_COLUMNS]
            + [fields[name] for name in EXTRA_COLUMNS]
        )
        return union_frames([conform_frame(frame, shape) for frame in frames])

    def _group_files(self, files: Sequence[BatchFile]) -> Iterable[list[BatchFile]]:
        """The files that one reader reads: of CSV those with one header; of Avro one file, as its reader knows one schema."""
        if self.kind == AVRO:
            return [[file] for file in files]
        groups: dict[str, list[BatchFile]] = defaultdict(list)
        for file in files:
            groups[file.header].append(file)
        return groups.values()

    def _rows_of(self, files: Sequence[BatchFile]) -> DataFrame:
        paths = [file.name for file in files]
        if self.kind in _LINES:
            return self._load_frame(_TEXT, paths, self._text_options())
        if self.kind != CSV:
            return self._read_typed_columns(paths)
        names = self._csv_names(files[0].header)
        schema = t.StructType([t.StructField(name, t.StringType()) for name in [*names, CORRUPT]])
        fixed = {
            "header": str(self._header).lower(),
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": CORRUPT,
            "columnPruning": "false",  # else a row counts as good by the columns that are asked for
        }
        return self._load_frame(CSV, paths, {**_CSV_OPTIONS, **self._options, **fixed}, schema)

    def _read_typed_columns(self, paths: Sequence[str]) -> DataFrame:
        """Files that name and type their columns themselves."""
        merge = {"mergeSchema": "true"} if self.kind in (PARQUET, ORC) else {}
        frame = self._load_frame(self.kind, paths, {**merge, **self._options})
        if _name_problem(frame.columns):
            raise ValueError(_name_problem(frame.columns))
        return frame

    def _load_frame(
        self, kind: str, paths: Sequence[str], options: Mapping[str, str], schema: t.StructType | None = None
    ) -> DataFrame:
        reader = self._spark.read.format(kind).options(**options)
        return (reader if schema is None else reader.schema(schema)).load(list(paths))

    def _text_options(self) -> dict[str, str]:
        return {name: value for name, value in self._options.items() if name in ("__globPaths__", "lineSep")}

    def _csv_names(self, header: str) -> list[str]:
        separator = self._options.get("sep") or self._options.get("delimiter") or ","
        quote = self._options.get("quote", '"') or None
        fields = next(csv.reader([header], delimiter=separator, quotechar=quote), [])
        if self._header:
            return fields
        return list(self._names) or [f"c{number}" for number in range(len(fields))]

    def _number_rows(self, frame: DataFrame, files: Sequence[BatchFile]) -> DataFrame:
        """The rows with where they stand."""
        corrupt = get_column(CORRUPT) if CORRUPT in frame.columns else f.lit(None).cast("string")
        columns = [get_column(name) for name in frame.columns if name != CORRUPT]
        rows = frame.select(
            *columns, corrupt.alias(CORRUPT), _build_path_column().alias(PATH), _build_row_column().alias(ROW)
        )
        positions = self._spark.createDataFrame(
            [(file.path, file.name, file.first, file.modified_ms) for file in files],
            "key_ string, name_ string, first_ long, modified_ long",
        )
        lost = f.raise_error(f.concat(f.lit("a row of a file that the batch does not have: "), PATH)).cast("long")
        return rows.join(f.broadcast(positions), get_column(PATH) == f.col("key_"), "left").select(
            *columns,
            (f.coalesce("first_", lost) + get_column(ROW)).alias(NUMBER),
            f.timestamp_millis("modified_").alias(MODIFIED),
            f.col("name_").alias(PATH),
            (get_column(ROW) + 1).alias(ROW),
            CORRUPT,
        )


def _describe_fault(error: Exception) -> str:
    """Describe what is wrong with a file."""
    causes = java_causes(error)
    return causes[-1].text.partition("\n")[0] if causes and causes[-1].text else describe_error(error)


def _build_path_column() -> Column:
    """The address of a row's file as Spark's list of files writes it: with three slashes."""
    return f.regexp_replace("_metadata.file_path", "^file:/+", "file:///")


def _build_row_column() -> Column:
    """The row's number in its file, from 0."""
    return f.monotonically_increasing_id().bitwiseAND(f.lit(_ROW_MASK))


def _name_problem(names: Sequence[str]) -> str:
    """Describe a column that has the name of an extra column; empty without one."""
    reserved = next((name for name in names if name in EXTRA_COLUMNS), "")
    return f"it has a column {reserved}, whose name the job uses itself" if reserved else ""
