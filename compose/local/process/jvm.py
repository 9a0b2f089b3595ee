"""The common parts of all Java services: the command line and the log format."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.fetch.java import Java

# log4j 2, to standard output: service.py puts that into the log file.
_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{ISO8601}} %-5p [%t] %c{{1}}: %m%n
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
"""

_LOG4J_1 = """\
log4j.rootLogger = {level}, console
log4j.appender.console = org.apache.log4j.ConsoleAppender
log4j.appender.console.layout = org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern = %d{{ISO8601}} %-5p [%t] %c{{1}}: %m%n
"""


@dataclass(frozen=True, slots=True)
class Heap:
    """Size of the Java heap in MiB. Small by default: the stack shares one machine with what it serves."""

    initial: int = 128
    maximum: int = 512

    @property
    def options(self) -> list[str]:
        """The JVM's options for it."""
        return [f"-Xms{self.initial}m", f"-Xmx{self.maximum}m"]


def java_command(
    java: Java,
    classpath: Iterable[Path],
    main: str,
    arguments: Sequence[str],
    heap: Heap,
    options: Sequence[str] = (),
) -> list[str]:
    """The command that runs a class."""
    path = ":".join(str(jar) for jar in classpath)
    return [str(java.executable), *heap.options, "-Djava.awt.headless=true", *options, "-cp", path, main, *arguments]


def write_log4j(folder: Path, level: str = "INFO") -> Path:
    """Write a log4j 2 configuration into the folder and return its path."""
    path = folder / "log4j2.properties"
    path.write_text(_LOG4J.format(level=level), encoding="utf-8")
    return path


def write_log4j_1(folder: Path, level: str = "INFO") -> Path:
    """Write a log4j 1 configuration into the folder and return its path."""
    path = folder / "log4j.properties"
    path.write_text(_LOG4J_1.format(level=level), encoding="utf-8")
    return path


def write_properties(path: Path, properties: dict[str, str]) -> Path:
    """Write a Java properties file and return its path. Values may hold any character, line breaks too."""
    lines = [f"{_escape_property(key, key=True)}={_escape_property(value)}" for key, value in properties.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path


def _escape_property(raw: str, *, key: bool = False) -> str:
    named = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        named |= {special: "\\" + special for special in "=: #!"}
    out: list[str] = []
    for index, letter in enumerate(raw):
        if letter in named:
            out.append(named[letter])
        elif letter == " " and index == 0:
            out.append("\\ ")
        elif " " <= letter <= "~":
            out.append(letter)
        else:
            units = letter.encode("utf-16-be")
            out.extend(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
    return "".join(out)
