"""Errors, grouped by what the runner has to do about them.

Every message says what happened, where (connector, task, file, offset ...) and how to fix it: an operator reads it in the
task's status.
"""


class MillraceError(Exception):
    """Base of all errors that the product raises on purpose.

    Attributes:
        trace: the trace of the process in which it happened, if that was another one; shown instead of this one's.
    """

    trace: str | None = None


class Fatal(MillraceError):
    """The task can't continue and a retry would not help: it fails and keeps its trace."""


class Retriable(MillraceError):
    """A temporary fault of a source, a sink or a network: retry after a back-off. Never counted as a bad record."""


class Skippable(MillraceError):
    """One record is bad: ``errors.tolerance`` decides whether it is skipped (and kept aside) or fails the task."""


class ConfigInvalid(MillraceError):
    """A configuration cannot work as it is; the message names the property, the value and what is allowed."""


class Fenced(MillraceError):
    """A newer incarnation of this task or leader has taken over: stop at once, write nothing more."""
