"""``millrace job snapshot|zipper|compact``: history as files, from the command line. Each starts a Spark session of its own."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from spark_jobs.history.rolling import Rolling
from spark_jobs.history.writing import HistoryWriter
from spark_jobs.sinks.files import config as options
from worker.command_parser import CommandParser, parse_count
from worker.terminal import progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from connectors.options import Config
    from spark_jobs.history.reader import HistoryTableEntry

_FORMATS: Final = ("parquet", "orc", "json", "csv", "avro", "delta", "table")
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def _make_parser(command: str, description: str) -> argparse.ArgumentParser:
    parser = CommandParser(prog=f"millrace job {command}", description=description)
    parser.add_argument(
        "where", metavar="FILE|PATH", help="a job file with sink.type=files, or the directory of its tables"
    )
    parser.add_argument("--table", metavar="NS", help="one table: its namespace or directory; * matches any text")
    parser.add_argument("--master", default="local[*]", help="Spark master (default: %(default)s)")
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="PATH", help="write there (a new directory); without it rows are printed")
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default=None,
        help="of the output: default parquet; printed rows: json lines, or table",
    )
    parser.add_argument("--limit", type=parse_count, default=None, help="print that many rows at most")
    parser.add_argument(
        "--key", default=None, metavar="A,B", help="columns that tell rows apart, instead of the primary key"
    )
    parser.add_argument("--version", type=parse_count, default=None, help="of the table's log (default: the newest)")


def find_location(where: str) -> tuple[str, Config | None]:
    """The tables' path that an argument means, and the job's configuration where it is a job file.

    Raises:
        ConfigInvalid: the job file is wrong, or its sink is not files.
    """
    if "://" in where or not os.path.isfile(where):  # noqa: PTH113 - may be any address
        return where.rstrip("/"), None
    from spark_jobs.config import job_files

    config = job_files.load_job(where).config
    if config["sink.type"] != "files":
        raise ConfigInvalid(f"{where}: sink.type is {config['sink.type']}, and only files has a history")
    return str(config[options.PATH]).rstrip("/"), config


def _open_session(name: str, master: str, path: str, config: Config | None) -> SparkSession:
    from spark_jobs.spark.filesystems import client_sets
    from spark_jobs.spark.session import build_session

    demand_tables(path, config)
    properties = {**(config.raw if config is not None else {}), options.PATH: path}
    conf = {f"spark.{key}": value for key, value in config.prefixed("spark.").items()} if config is not None else {}
    conf.pop("spark.master", None)
    with progress("starting Spark", quiet_s=2):
        session = build_session(
            f"millrace-{name}",
            master=master,
            conf={"spark.log.level": "ERROR", **conf},
            extra_jars=(*(("delta",) if _is_delta(path, config) else ()), *client_sets(properties)),
        )
    session.sparkContext.setLogLevel("ERROR")
    return session


def demand_tables(path: str, config: Config | None) -> None:
    """Look for tables before Spark starts, where the path is one of this machine.

    Raises:
        ConfigInvalid: there are none.
    """
    from spark_jobs.history.log import LOG
    from spark_jobs.history.reader import table_directories

    local = path.removeprefix("file://")
    # Where Hadoop has a configuration, paths may be on another file system.
    configured = "HADOOP_CONF_DIR" in os.environ or (config is not None and bool(config.prefixed("spark.hadoop.")))
    if "://" in local or configured or table_directories(None, local):
        return
    raise ConfigInvalid(
        f"{path}: there is no table there: no folder with {LOG} or _delta_log. Name the job's file, or the folder that its "
        f"{options.PATH} names"
    )


def _is_delta(path: str, config: Config | None) -> bool:
    if config is not None:
        return bool(config[options.FORMAT] == "delta")
    local = path.removeprefix("file://")
    # Other file systems can't be asked before there is a session: the jars do no harm.
    return "://" in local or any(name == "_delta_log" for _, names, _ in os.walk(local) for name in names)


def snapshot(argv: Sequence[str]) -> int:
    """``millrace job snapshot``: a table as it was. Returns the exit code."""
    from spark_jobs.history import reader

    parser = _make_parser("snapshot", "A table as it was at a time (rows with ums_ts_ up to it) or up to an ums_id_.")
    parser.add_argument(
        "--at",
        default=None,
        metavar="TIME|ID",
        help="2026-11-21T10:00:00Z (without an offset: UTC) or an ums_id_ (digits); default: all",
    )
    _add_output(parser)
    arguments = parser.parse_args(list(argv))
    at = None if arguments.at is None else reader.parse_at(arguments.at)
    path, config = find_location(arguments.where)
    spark = _open_session("snapshot", arguments.master, path, config)
    try:
        frame = reader.snapshot(
            spark, path, arguments.table, at=at, key=_split_columns(arguments.key), version=arguments.version
        )
        _deliver_frame(frame, arguments)
    finally:
        spark.stop()
    return 0


def zipper(argv: Sequence[str]) -> int:
    """``millrace job zipper``: all versions of a table's rows with their validity. Returns the exit code."""
    from spark_jobs.history import reader

    parser = _make_parser("zipper", "Every version of a table's rows with valid_from, valid_to and is_current.")
    _add_output(parser)
    arguments = parser.parse_args(list(argv))
    path, config = find_location(arguments.where)
    spark = _open_session("zipper", arguments.master, path, config)
    try:
        frame = reader.zipper(
            spark, path, arguments.table, key=_split_columns(arguments.key), version=arguments.version
        )
        _deliver_frame(frame, arguments)
    finally:
        spark.stop()
    return 0


def _split_columns(column_list: str | None) -> list[str] | None:
    return None if column_list is None else [name.strip() for name in column_list.split(",")]


def _deliver_frame(frame: DataFrame, arguments: argparse.Namespace) -> None:
    if arguments.output is None:
        shown = frame if arguments.limit is None else frame.limit(arguments.limit)
        if arguments.format == "table":
            shown.show(arguments.limit or 1_000_000, truncate=False)
            return
        if arguments.format not in (None, "json"):
            raise ConfigInvalid(f"--format {arguments.format} needs --output")
        from spark_jobs.history import formats

        for row in formats.json_lines(shown).toLocalIterator():
            sys.stdout.write(f"{row[0]}\n")
        return
    kind = arguments.format or "parquet"
    if kind == "table":
        raise ConfigInvalid("--format table is for printing; files are parquet, json, csv, avro or delta")
    limited = frame if arguments.limit is None else frame.limit(arguments.limit)
    if kind == "delta":
        limited.write.format("delta").mode("errorifexists").save(arguments.output)
    else:
        from spark_jobs.history import formats

        formats.write_frame(limited, arguments.output, kind, mode="errorifexists")
    sys.stderr.write(json.dumps({"output": arguments.output, "format": kind}) + "\n")


def compact(argv: Sequence[str]) -> int:
    """``millrace job compact``: merge small files, whatever their age; may run next to the job. Returns the exit code."""
    parser = _make_parser(
        "compact",
        "Merges small files up to the target size, whatever their age, and deletes what no reader "
        "needs any more. May run at the same time as the job that writes; readers don't notice.",
    )
    parser.add_argument(
        "--target-size", default=None, metavar="BYTES", help="128m, 1g, ...; default: the job's rolling size"
    )
    parser.add_argument(
        "--retention",
        type=parse_count,
        default=None,
        metavar="MS",
        help="how long replaced files stay for readers (default: the job's, or an hour); 0: no one reads now",
    )
    arguments = parser.parse_args(list(argv))
    path, config = find_location(arguments.where)
    plan = Rolling() if config is None else options.rolling_of(config)
    if arguments.target_size is not None:
        plan = replace(plan, size=size_of(arguments.target_size))
    if arguments.retention is not None:
        plan = replace(plan, retention=arguments.retention)
    spark = _open_session("compact", arguments.master, path, config)
    try:
        from spark_jobs.history import reader

        tables = (
            reader.find_tables(spark, path)
            if arguments.table is None
            else [reader.one_table(spark, path, arguments.table)]
        )
        if not tables:
            raise ConfigInvalid(f"{path}: there are no tables there")
        for table in tables:
            sys.stdout.write(json.dumps(compact_table(spark, table, plan, config)) + "\n")
    finally:
        spark.stop()
    return 0


def size_of(size_text: str) -> int:
    """Bytes of ``128m`` and the like.

    Raises:
        ConfigInvalid: it is no size.
    """
    number, unit = size_text.strip().lower().removesuffix("b"), ""
    if number[-1:] in _UNITS:
        number, unit = number[:-1], number[-1:]
    if not number.isdigit() or int(number) < 1:
        raise ConfigInvalid(f"{size_text!r} is no size: digits, then k, m or g")
    return int(number) * _UNITS[unit]


def compact_table(
    spark: SparkSession, history_table: HistoryTableEntry, plan: Rolling, config: Config | None = None
) -> dict[str, Any]:
    """Merge the small files of one table and return what was done. Works while a job writes the table. Blocks: runs jobs."""
    from spark_jobs.history import delta, reader, rolling, upkeep
    from spark_jobs.history.storage import HadoopStorage
    from spark_jobs.history.table import HistoryDirectory

    if history_table.delta:
        removed, added = delta.optimize_table(spark, history_table.path)
        delta.vacuum_table(spark, history_table.path)
        return {"table": history_table.name, "merged": removed, "into": added}
    table = HistoryDirectory(spark, HadoopStorage(spark, history_table.path))
    writer = HistoryWriter()
    table.finish_all(writer)
    state = table.log.state(refresh=False)
    kinds = [file.format for file in sorted(state.files.values(), key=lambda candidate: candidate.added)]
    kind = config[options.FORMAT] if config is not None else kinds[-1] if kinds else "parquet"
    compression = config[options.COMPRESSION] if config is not None else None
    done = upkeep.UpkeepResult()
    for bucket in rolling.small_files(state):
        done.add(upkeep.roll_bucket(table, bucket, plan.size, writer, kind=kind, compression=compression))
    for step in upkeep.compact_bucket_files(table, plan.size, writer, kind=kind, compression=compression):
        done.add(step)
    done.add(upkeep.show_merged(table, plan.retention, writer))
    done.add(upkeep.vacuum_files(table, plan.retention, writer))
    upkeep.write_manifest(table)
    return {
        **reader.describe_files(spark, history_table),
        "merged": done.inputs,
        "into": done.outputs,
        "brought_into_sight": done.shown,
        "deleted": done.deleted,
    }
