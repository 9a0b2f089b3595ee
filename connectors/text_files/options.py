"""Options of reading files, declared once for all connectors that do, and their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import ConfigInvalid
from connectors.options import (
    ConfigKey,
    ConfigProblem,
    ConfigType,
    Importance,
    at_least,
    between,
    invalid,
    non_empty,
    one_of,
)
from connectors.text_files.lines import encoding_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "file"
BATCH_SIZE: Final = "batch.size"
DIRECTORY: Final = "directory"
PATTERN: Final = "file.pattern"
SCAN_INTERVAL: Final = "directory.scan.interval.ms"
ENCODING: Final = "file.encoding"
MALFORMED: Final = "file.encoding.errors"
COMPRESSION: Final = "file.compression"
LINE_LIMIT: Final = "line.max.bytes"
LONG_LINES: Final = "line.too.long"
TRACKING: Final = "rotation.tracking"
ROTATED_PATTERN: Final = "rotation.pattern"
ROTATION_WAIT: Final = "rotation.wait.ms"
POLL_INTERVAL: Final = "poll.interval.max.ms"
#: The files of one task; made by the connector, not by users.
TASK_FILES: Final = "task.files"


def _check_encoding(name: str, value: Any) -> str | None:
    problem = encoding_problem(value)
    return None if problem is None else invalid(name, value, problem)


_DIRECTORY_GROUP: Final = "A directory of files"
_TEXT_GROUP: Final = "Text"
_ROTATION_GROUP: Final = "Rotation"

#: Behind the connector's own options; every connector declares ``file`` and ``batch.size`` itself.
READING_KEYS: Final = (
    ConfigKey(
        name=DIRECTORY,
        type=ConfigType.STRING,
        default=None,
        group=_DIRECTORY_GROUP,
        doc="Read all files of this directory whose names match file.pattern, instead of one file. The files are divided "
        "among the tasks; each is a source partition of its own. Give either this or file.",
        example="/var/spool/in",
    ),
    ConfigKey(
        name=PATTERN,
        type=ConfigType.STRING,
        default="*",
        group=_DIRECTORY_GROUP,
        validator=non_empty,
        doc="Which files of the directory to read: a shell pattern of names. Names that start with a dot never match. It "
        "must not match the names that rotation gives to files, or they are read twice.",
        example="*.log",
    ),
    ConfigKey(
        name=SCAN_INTERVAL,
        type=ConfigType.INT,
        default=2000,
        unit="ms",
        validator=at_least(100),
        importance=Importance.LOW,
        group=_DIRECTORY_GROUP,
        doc="How often to look for new files in the directory.",
    ),
    ConfigKey(
        name=ENCODING,
        type=ConfigType.STRING,
        default="utf-8",
        group=_TEXT_GROUP,
        validator=_check_encoding,
        doc="The text encoding: a Python codec name. utf-16 and utf-32 take the byte order from the file's mark; "
        "utf-8-sig drops a mark that utf-8 would leave in the first line.",
        example="latin-1",
    ),
    ConfigKey(
        name=MALFORMED,
        type=ConfigType.STRING,
        default="replace",
        group=_TEXT_GROUP,
        validator=one_of("replace", "report"),
        importance=Importance.LOW,
        doc="What to do with bytes that are not text in this encoding: replace puts U+FFFD in their place as Kafka "
        "Connect does; report makes the line a bad record with its bytes and position, for errors.tolerance.",
    ),
    ConfigKey(
        name=LINE_LIMIT,
        type=ConfigType.INT,
        default=1_048_576,
        unit="bytes",
        validator=between(64, 64 * 1024 * 1024),
        importance=Importance.LOW,
        group=_TEXT_GROUP,
        doc="The longest line. It bounds what a task holds in memory when a file has no line ends.",
    ),
    ConfigKey(
        name=LONG_LINES,
        type=ConfigType.STRING,
        default="report",
        group=_TEXT_GROUP,
        validator=one_of("report", "split"),
        importance=Importance.LOW,
        doc="What to do with a longer line: report makes it a bad record that holds its beginning, for "
        "errors.tolerance; split gives it as several records of at most line.max.bytes.",
    ),
    ConfigKey(
        name=COMPRESSION,
        type=ConfigType.STRING,
        default="auto",
        group=_TEXT_GROUP,
        validator=one_of("auto", "none", "gzip"),
        importance=Importance.LOW,
        doc="Whether the file is gzip: auto looks at its first two bytes. Positions count the bytes of the text, not of "
        "the compressed file, so a rotated file may be compressed between two reads.",
    ),
    ConfigKey(
        name=TRACKING,
        type=ConfigType.BOOLEAN,
        default=False,
        group=_ROTATION_GROUP,
        doc="Keep a checksum of the file's first 1024 bytes in the offset, next to the position, so that a rotation or "
        "truncation that happens while no task runs is noticed too: the rotated file is then read to its end "
        "first. Without it offsets are exactly Kafka Connect's, and only a running task follows rotation. Files of a "
        "directory always have the checksum, so that a new file of an old name is read from its beginning; there "
        "this option decides whether rotated files are looked for.",
    ),
    ConfigKey(
        name=ROTATED_PATTERN,
        type=ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group=_ROTATION_GROUP,
        doc="Names of rotated files, as a shell pattern, for rotation.tracking. They are in the directory of the file; "
        "where its name is a link, also in that of the link's target. Not set means the file's name, or the target's, "
        "followed by anything.",
        example="app-*.log.gz",
    ),
    ConfigKey(
        name=ROTATION_WAIT,
        type=ConfigType.INT,
        default=1000,
        unit="ms",
        validator=at_least(0),
        importance=Importance.LOW,
        group=_ROTATION_GROUP,
        doc="How long a renamed file must have been quiet before the new file is read: its writer may not have noticed "
        "the rotation yet.",
    ),
    ConfigKey(
        name=POLL_INTERVAL,
        type=ConfigType.INT,
        default=250,
        unit="ms",
        validator=between(10, 60_000),
        importance=Importance.LOW,
        doc="The longest pause between two looks at a file that does not grow. After new data the pause starts at 10 ms "
        "and doubles up to this.",
    ),
    ConfigKey(
        name=TASK_FILES,
        type=ConfigType.STRING,
        default=None,
        internal=True,
        doc="The names of one task's files, a JSON list; set by the connector.",
    ),
)


class FileReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one task reads its files; times in seconds, sizes in bytes."""

    batch_size: int
    encoding: str
    replace_malformed: bool
    line_limit: int
    split_long: bool
    compression: str
    #: Whether offsets carry a fingerprint.
    tracking: bool
    #: Names of rotated files; None means the name followed by anything, "" that they are not looked for.
    rotated_pattern: str | None
    rotation_wait: float
    poll_interval: float
    #: Whether the files are those of a directory, where a file that is gone is forgotten.
    several: bool
    #: Paths as they are written in source partitions; empty for the standard input.
    files: tuple[str, ...]

    @property
    def finds_rotated(self) -> bool:
        """Whether a saved position is looked for in rotated files, too."""
        return self.tracking and self.rotated_pattern != ""


def single_file(config: Mapping[str, Any]) -> str | None:
    """The ``file`` option; Kafka Connect takes an empty string as not set."""
    return config[FILE] or None


def read_settings(config: Mapping[str, Any]) -> FileReadSettings:
    """The settings of one task.

    Raises:
        ConfigInvalid: ``task.files`` is not a JSON list of strings.
    """
    if config[DIRECTORY]:
        try:
            files = tuple(msgspec.json.decode(config[TASK_FILES] or "[]", type=list[str]))
        except msgspec.DecodeError as error:
            raise ConfigInvalid(
                invalid(TASK_FILES, config[TASK_FILES], f"Not a JSON list of names ({error})")
            ) from error
    else:
        single = single_file(config)
        files = () if single is None else (single,)
    return FileReadSettings(
        batch_size=max(1, config[BATCH_SIZE]),
        encoding=config[ENCODING],
        replace_malformed=config[MALFORMED] == "replace",
        line_limit=config[LINE_LIMIT],
        split_long=config[LONG_LINES] == "split",
        compression=config[COMPRESSION],
        tracking=config[TRACKING] or bool(config[DIRECTORY]),
        rotated_pattern=(config[ROTATED_PATTERN] or None) if config[TRACKING] else "",
        rotation_wait=config[ROTATION_WAIT] / 1000,
        poll_interval=config[POLL_INTERVAL] / 1000,
        several=bool(config[DIRECTORY]),
        files=files,
    )


def reading_problems(config: Mapping[str, Any]) -> list[ConfigProblem]:
    """Complaints about what single options can't tell."""
    if config[FILE] and config[DIRECTORY]:
        message = invalid(DIRECTORY, config[DIRECTORY], "Give either file or directory; both are set")
        return [ConfigProblem(DIRECTORY, message)]
    return []
