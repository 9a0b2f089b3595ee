"""The input and the answers of REST operations, as data: the OpenAPI document is generated from it.

Shapes of bodies are the types of ``worker.rest.shapes.schemas``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON: Final = "application/json"


class Tag(StrEnum):
    """The subject of an operation; the document groups by it."""

    WORKER = "worker"
    CONNECTORS = "connectors"
    TASKS = "tasks"
    OFFSETS = "offsets"
    TOPICS = "topics"
    SNAPSHOTS = "snapshots"
    PLUGINS = "connector-plugins"
    FLOWS = "flows"
    RULES = "rules"
    CONSOLE = "console"
    ADMIN = "admin"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A query parameter.

    Attributes:
        name: its name.
        doc: what it does.
        type: a type whose JSON Schema it has; a list may be given several times.
        default: what holds without it; None to name none.
    """

    name: str
    doc: str
    type: Any = str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Link:
    """An operation that can be called next with values of an answer.

    Attributes:
        operation: the id of the operation.
        parameters: its parameters -> where their values are, as runtime expressions of OpenAPI.
    """

    operation: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is not an error.

    Attributes:
        doc: when it comes.
        type: the shape of its body; None for no body.
        media: the body's content type.
        location: whether it names the address of what was made.
        links: what can be asked next.
    """

    doc: str
    type: Any = None
    media: str = JSON
    location: bool = False
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation's contract.

    Attributes:
        id: unique; generated clients name their method so.
        summary: one line.
        tag: the group.
        replies: the answers that are not errors.
        errors: status -> when, for the errors of this operation. Those that any operation may have (``openapi.py``) are added.
        query: its query parameters.
        body: the shape of the request's body; None: it takes none.
        examples: bodies, for readers and for tools.
        note: more than the summary says.
        kafka: whether Kafka Connect has it.
    """

    id: str
    summary: str
    tag: Tag
    replies: Mapping[int, Reply]
    errors: Mapping[int, str] = field(default_factory=dict)
    query: tuple[QueryParameter, ...] = ()
    body: Any = None
    examples: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    kafka: bool = True


def make_links(parameters: Mapping[str, str], *operations: str) -> tuple[Link, ...]:
    """One link to each operation, all with the same parameters. Pure."""
    return tuple(Link(operation, parameters) for operation in operations)


#: The operations on a connector whose name is in the answer.
NAMED: Final = make_links(
    {"connector": "$response.body#/name"},
    "getConnector",
    "getConfig",
    "putConfig",
    "patchConfig",
    "getStatus",
    "pauseConnector",
    "resumeConnector",
    "stopConnector",
    "restartConnector",
    "listTasks",
    "getOffsets",
    "getConnectorTopics",
    "explainConnector",
    "deleteConnector",
)
#: Of operations that only the leader (or the worker that runs the connector) can answer.
FORWARD: Final = QueryParameter(
    "forward",
    "Whether another worker may be asked where this one can't answer itself: `false` answers 409 "
    "instead. Workers set it; clients have no need to.",
    bool,
)
UNKNOWN: Final = "There is no such connector."
CONFLICT: Final = (
    "No leader is known, or the answer is another worker's and `forward` forbids to ask it. Retry: the "
    "message is the one that Kafka Connect's clients know as passing."
)
