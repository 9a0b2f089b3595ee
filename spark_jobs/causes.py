"""Finds Millrace's own errors in what Spark makes of them: those raised in Python tasks arrive as the text of a trace."""
from __future__ import annotations

import re
from typing import Final

from connectors import errors
from connectors.errors import Fatal, MillraceError, Retriable

_OWN: Final = {name: kind for name in ("Fatal", "Retriable", "Skippable", "ConfigInvalid", "Fenced")
               if isinstance(kind := getattr(errors, name), type)}
#: ``connectors.errors.Fatal: text`` at the beginning of a line; the text goes on until a blank line or the JVM's own trace.
_RAISED: Final = re.compile(r"^(?:[\w.]*: )*connectors\.errors\.(Fatal|Retriable|Skippable|ConfigInvalid|Fenced): "
                            r"(.*?)(?=\n\s*\n|\n\tat |\n\s*JVM stacktrace|\Z)", re.MULTILINE | re.DOTALL)
#: Errors of Spark that say the same the next time.
_LASTING: Final = ("PythonException", "AnalysisException", "ParseException", "IllegalArgumentException")
_MEMORY: Final = ("java.lang.OutOfMemoryError", "Python worker exited unexpectedly (crashed)")


def cause_of(error: BaseException) -> BaseException:
    """The error to act on: ``error`` itself if it is one of ours, else one of ours found in its causes or its text.

    Others come back as they are.
    """
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        if isinstance(found, MillraceError):
            return found
        seen.add(id(found))
        found = found.__cause__
    text = str(error)
    matches = _RAISED.findall(text)
    if matches:
        kind, message = matches[-1]
        made: MillraceError = _OWN[kind](message.strip())
        made.trace = text
        return made
    for sign in _MEMORY:
        if sign in text:
            return _with_trace(Fatal(f"{sign}: a task or the driver ran out of memory; raise spark.driver.memory (local "
                                     f"master) or "
                                     "spark.executor.memory, or lower source.max.offsets.per.trigger"), text)
    return error


def may_pass(error: BaseException) -> bool:
    """Whether another start may help.

    Millrace's own errors say so; else the network's, the system's and the JVM's may pass, and mistakes in code, data or queries
    don't.
    """
    if isinstance(error, MillraceError):
        return isinstance(error, Retriable)
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or (package in ("py4j", "pyspark", "confluent_kafka")
                                          and type(error).__name__ not in _LASTING)


def _with_trace(error: MillraceError, trace: str) -> MillraceError:
    error.trace = trace
    return error
