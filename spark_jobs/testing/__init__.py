"""The conformance kit for sinks: what every sink must pass. For the tests of sinks, also those outside this project."""

from spark_jobs.testing.batches import Change, change
from spark_jobs.testing.conformance import Report, cases, check_sink
from spark_jobs.testing.gate import Gate
from spark_jobs.testing.model import RuleBroken
from spark_jobs.testing.target import SinkTarget, Supports, Unsupported

__all__ = [
    "Change",
    "Gate",
    "Report",
    "RuleBroken",
    "SinkTarget",
    "Supports",
    "Unsupported",
    "cases",
    "change",
    "check_sink",
]
