"""Finds the cause of a failure in what Spark makes of it: our own errors from Python tasks, crashed workers, Java's errors."""

from __future__ import annotations

import re
import sys
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid, Fatal, Fenced, MillraceError, Retriable, Skippable
from spark_jobs.spark import watchdog
from spark_jobs.spark.filesystems import hadoop_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KINDS: Final = (Fatal, Retriable, Skippable, ConfigInvalid, Fenced)
#: The names that a line begins with: ``connectors.errors.Fatal: text``, or others before it. One of ours is among them.
_NAMES: Final = re.compile(r"^(?:[\w.]*: )+", re.MULTILINE)
_NAME: Final = re.compile(r"(\w+(?:\.\w+)+): ")
#: Where the text of an error of ours ends: at a blank line or the JVM's own trace.
_END: Final = re.compile(r"\n\s*\n|\n\tat |\n\s*JVM stacktrace|\Z")
#: What Spark says of a Python worker that is gone, and the first line of what the worker left behind.
_CRASHED: Final = re.compile(
    r"Python (?:worker (?:exited unexpectedly \(crashed\)|failed to connect back)|daemon failed to launch worker)"
    r"[.:]?[ -]*([^\n]*)"
)
#: A connection to a Python worker that broke, at its start for instance: an I/O error whose own stack is Spark's side of it.
_CUT_OFF: Final = re.compile(
    r"java\.(?:io\.EOFException|io\.IOException|net\.SocketException)[^\n]*\n(?:\tat [^\n]*\n)*?"
    r"\tat org\.apache\.spark\.(?:api\.python\.(?:PythonWorkerFactory|BasePythonRunner)|"
    r"sql\.execution\.python\.Python\w+(?:In|Out)put)"
)
#: Errors of Spark that say the same the next time.
_LASTING: Final = ("PythonException", "AnalysisException", "ParseException", "IllegalArgumentException")
_MOST_CAUSES: Final = 20
#: The first line of a ``Py4JJavaError`` names an object of this process and nothing else.
_CALL: Final = re.compile(r"^An error occurred while calling \S+?\.?(\w+)\.?\s*$")


class WorkerCrashed(Retriable):
    """A Python worker of Spark died in the middle of a batch: the frame does the batch again, a limited number of times."""


class JavaCause(NamedTuple):
    """One error of Java's chain: the name of its class and its message."""

    kind: str
    text: str


class _Advice(NamedTuple):
    kind: re.Pattern[str]
    text: re.Pattern[str]
    error: type[MillraceError]
    advice: str


def _make_advice(kind: str, message_pattern: str, error: type[MillraceError], advice: str) -> _Advice:
    return _Advice(re.compile(kind), re.compile(message_pattern), error, advice)


#: Errors of Java that people meet, the first that matches counts: kind and text of any error in the chain, what to do about it.
_ADVICE: Final = (
    _make_advice(
        r"OutOfMemoryError$",
        "",
        Fatal,
        "a task or the driver ran out of memory: raise spark.driver.memory (local master) or spark.executor.memory, or "
        "lower source.max.offsets.per.trigger",
    ),
    _make_advice(
        r"",
        r"System memory \d+ must be at least",
        Fatal,
        "raise spark.driver.memory: Spark itself needs about 450 MB, a job 1g and more",
    ),
    _make_advice(
        r"",
        r"No space left on device|Disk quota exceeded|File too large",
        Retriable,
        "the disk is full, or a limit of file sizes is reached: make room on the file system of checkpoint.location, "
        "state.dir, spark.local.dir and the sink",
    ),
    _make_advice(
        r"SparkRuntimeException$",
        r"\[USER_RAISED_EXCEPTION\] Table \S+ has several shards",
        Fatal,
        "see Sharded tables in docs/jobs/formats.md",
    ),
    _make_advice(
        r"ClassNotFoundException$",
        r"\.(?:fs|gs|azurebfs)\.",
        Fatal,
        "Spark comes without the client of this file system: add its jars by spark.jars.packages, for s3a "
        "org.apache.hadoop:hadoop-aws:{hadoop}, for abfs org.apache.hadoop:hadoop-azure:{hadoop} (see docs/jobs/running.md)",
    ),
    _make_advice(
        r"UnsupportedFileSystemException$",
        "",
        Fatal,
        "correct the address (checkpoint.location, sink.files.path), or add the jars of its file system by "
        "spark.jars.packages and name its class in spark.hadoop.fs.<scheme>.impl",
    ),
    _make_advice(
        r"AccessControlException$|AccessDeniedException$", "", Fatal, "give the job's user the right to write there"
    ),
    _make_advice(
        r"\.kafka\.common\.errors\.(?:\w*Authorization\w*|SaslAuthentication\w*|SslAuthentication\w*)$",
        "",
        Fatal,
        "correct kafka.sasl.*, kafka.ssl.* and the ACLs",
    ),
    _make_advice(
        r"\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network|LeaderNotAvailable|NotLeaderOrFollower|"
        r"CoordinatorNotAvailable|BrokerNotAvailable)\w*$",
        "",
        Retriable,
        "Kafka does not answer: check kafka.bootstrap.servers and the brokers",
    ),
    _make_advice(
        r"TimeoutException$",
        r"Cannot fetch record",
        Retriable,
        "Kafka does not answer: check kafka.bootstrap.servers and the brokers",
    ),
    _make_advice(
        r"^java\.net\.(?:ConnectException|UnknownHostException|NoRouteToHostException|SocketTimeoutException|SocketException)$",
        "",
        Retriable,
        "check the address and that the server runs",
    ),
)


def cause_of(error: BaseException) -> BaseException:
    """The error to act on: ``error`` itself if it is one of ours, else one of ours found in its causes or its text.

    A crashed Python worker becomes ``WorkerCrashed``, or ``Retriable`` if our watchdog ended it; an error of Java becomes one
    of ours that names the cause and the fix, where the fix is known. Others come back as they are.
    """
    seen_ids: set[int] = set()
    candidate: BaseException | None = error
    while candidate is not None and id(candidate) not in seen_ids:
        if isinstance(candidate, MillraceError):
            return candidate
        seen_ids.add(id(candidate))
        candidate = candidate.__cause__
    message = str(error)
    raised = _raised_in_task(message)
    if raised is not None:
        return _with_trace(raised, message)
    crashed = _CRASHED.search(message)
    if crashed or _CUT_OFF.search(message):
        return _with_trace(crash_of(crashed.group(1).strip() if crashed else ""), message)
    return known_cause(java_causes(error), message) or error


def _raised_in_task(trace: str) -> MillraceError | None:
    """The last error of ours in the trace of a Python task, as its kind; None if it has no such error."""
    for line in reversed(list(_NAMES.finditer(trace))):
        for name in _NAME.finditer(trace, line.start(), line.end()):
            kind = _kind_of(name[1])
            end = _END.search(trace, name.end())
            if kind and end:
                return kind(trace[name.end() : end.start()].strip())
    return None


def _kind_of(name: str) -> type[MillraceError] | None:
    """The kind of error that the class of this qualified name is of, such as ``Retriable``; None if it is not one of ours.

    The driver may not have imported the module that raises it, so the module is imported, if its package is here already:
    a line of a message may look like a name, too.
    """
    if name.partition(".")[0] not in sys.modules:
        return None
    try:
        named = resolve_name(name)
    except Exception:  # noqa: BLE001 - whatever an import raises, the task's own error is the one to show
        return None
    if not isinstance(named, type):
        return None
    return next((kind for kind in _KINDS if issubclass(named, kind)), None)


def crash_of(left: str) -> MillraceError:
    """The error for a Python worker that died and left this line behind; empty: it left none. Pure."""
    if left.startswith(watchdog.SIGN):
        return Retriable(f"a call into Kafka's client hung: {left.removeprefix(watchdog.SIGN).strip()}")
    # Without the fault handler Spark's own advice is there.
    said = f": {left}" if left and not left.startswith("Consider setting") else ""
    return WorkerCrashed(
        f"a Python worker process died{said or ' without saying why (killed, or out of memory?)'}. If the system's log says "
        "that it was killed for its memory, lower source.max.offsets.per.trigger, or give the machine more"
    )


def java_causes(error: BaseException) -> list[JavaCause]:
    """Java's chain of causes, the outermost first; empty if ``error`` is not Java's. Asks the JVM, which may be gone."""
    java: Any = getattr(error, "java_exception", None)
    captured: Any = error
    while java is None and captured is not None:  # pyspark's own errors
        java, captured = getattr(captured, "_origin", None), getattr(captured, "_cause", None)
    causes: list[JavaCause] = []
    try:
        while java is not None and len(causes) < _MOST_CAUSES:
            causes.append(JavaCause(str(java.getClass().getName()), str(java.getMessage() or "")))
            java = java.getCause()
    except Exception:  # noqa: BLE001 - the JVM is gone: its text is all that there is
        return causes or list(_causes_in(str(error)))
    return causes or list(_causes_in(str(error)))


#: ``java.io.IOException: text`` as Java prints errors: at the beginning of a line, behind ``Caused by:``, Py4J's colon, or the
#: name of the executor that lost a task.
_PRINTED: Final = re.compile(
    r"(?:^(?:: |Caused by: )?|\): )((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error))(?:: ([^\n]*))?$", re.MULTILINE
)


def _causes_in(trace: str) -> Iterator[JavaCause]:
    """Errors of Java in a printed trace."""
    for kind, message in _PRINTED.findall(trace)[:_MOST_CAUSES]:
        yield JavaCause(kind, message)


def known_cause(chain: Sequence[JavaCause], trace: str) -> MillraceError | None:
    """The error for a chain of Java's causes, by the first rule that knows one of them; None if none does."""
    # What tasks met is text within the outer errors.
    everything = [*reversed(chain), *_causes_in("\n".join(java_cause.text for java_cause in chain))]
    for rule in _ADVICE:
        for java_cause in everything:
            if rule.kind.search(java_cause.kind) and rule.text.search(java_cause.text):
                return _with_trace(
                    rule.error(f"{_describe_cause(java_cause)}: {rule.advice.format(hadoop=hadoop_version())}"), trace
                )
    return None


def describe_error(error: BaseException) -> str:
    """The text of an error for people: of Java's, the innermost cause and where it came up, instead of Py4J's object names."""
    chain = java_causes(error)
    message = str(error) or type(error).__name__
    if isinstance(error, MillraceError) or not chain:
        return message
    call = _CALL.match(message.partition("\n")[0])
    inner = chain[-1]
    outer = chain[0] if len(chain) > 1 and chain[0].kind != inner.kind else None
    where = (
        f" (Spark was in {call.group(1)}" + (f"; {_describe_cause(outer, 300)}" if outer else "") + ")" if call else ""
    )
    return _describe_cause(inner) + where


def _describe_cause(cause: JavaCause, max_length: int = 2000) -> str:
    first = cause.text.strip().partition("\n\tat ")[0].strip()
    if first.startswith("Traceback"):  # of a Python task: its last line says what it is
        first = first.splitlines()[-1]
    return f"{cause.kind}: {first[:max_length]}" if first else cause.kind


def may_pass(error: BaseException) -> bool:
    """Whether another start may help.

    Millrace's own errors say so; else the network's, the system's and the JVM's may pass, and mistakes in code, data or queries
    don't.
    """
    if isinstance(error, MillraceError):
        return isinstance(error, Retriable)
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or (
        package in ("py4j", "pyspark", "confluent_kafka") and type(error).__name__ not in _LASTING
    )


def _with_trace(error: MillraceError, trace: str) -> MillraceError:
    error.trace = trace
    return error
