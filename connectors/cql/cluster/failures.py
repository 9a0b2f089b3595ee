"""Converts the driver's exceptions to the errors that the runtime knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable

if TYPE_CHECKING:
    from collections.abc import Sequence


class SchemaChanged(Retriable):
    """A query names a table, a column or a field that is not there (any more), or gets another type than it expects.

    Read the table's definition again and continue from the last position.
    """


class NodesAway(Retriable):
    """No node could be asked at all."""


class CqlLoginRefused(ConfigInvalid):
    """The cluster refuses the credentials of a session that it let in before: they may be rotated just now."""


#: Parts of refusals that say that something named in the query is not there (any more).
_GONE = (
    "undefined column",
    "undefined name",
    "unknown identifier",
    "unrecognized name",
    "unconfigured table",
    "does not exist",
    "unconfigured columnfamily",
    "unknown field",
    "non-existent",
    "unknown table",
    "not found in table",
    "table doesn't exist",
    "unknown keyspace",
)
#: Parts of what Cassandra and Scylla say of a mutation above their limit.
_TOO_LARGE = ("oversized mutation", "mutationexceededmaxsize", "too large for the maximum size")
#: Parts of refused logins that do not mean wrong credentials: the node could not look them up.
_PASSING_LOGIN = ("unable to perform", "cannot achieve consistency", "unavailable", "timed out", "timeout")


def translate_error(error: BaseException, query: str, nodes: Sequence[str] = ()) -> MillraceError:
    """The error to raise in place of the driver's ``error``.

    Args:
        error: what the driver raised.
        query: what was asked, for the message.
        nodes: who was asked, if the error does not say so itself.
    """
    from cassandra import (
        AuthenticationFailed,
        CoordinationFailure,
        InvalidRequest,
        OperationTimedOut,
        Timeout,
        Unauthorized,
        Unavailable,
        UnresolvableContactPoints,
    )
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionBusy, ConnectionException
    from cassandra.protocol import ErrorMessage

    if isinstance(error, MillraceError):
        return error
    where = f" (query: {_shorten_query(query)})" if query else ""
    asked = f" {', '.join(nodes)}" if nodes else ""
    if isinstance(error, AuthenticationFailed):
        return _login_error(str(error), where)
    if isinstance(error, NoHostAvailable):
        return _no_host(error, where, asked)
    if isinstance(error, UnresolvableContactPoints):
        return NodesAway(
            f"no name of the contact points{asked} can be resolved: check them and the name service{where}"
        )
    if isinstance(error, OperationTimedOut):
        host = getattr(error, "last_host", None)
        return Retriable(f"node {_format_node(host) if host else asked or '?'} did not answer in time{where}")
    if isinstance(error, Timeout | Unavailable | CoordinationFailure):
        return Retriable(f"the cluster could not answer at the consistency level asked for: {error}{asked}{where}")
    if isinstance(error, InvalidRequest):
        return _refusal_error(str(error), where)
    if isinstance(error, Unauthorized):
        return Fatal(f"the user may not do this: {error}{where}; {_missing_right(str(error), query)}")
    if isinstance(error, ConnectionException | ConnectionBusy | OSError):
        return Retriable(f"the connection to{asked or ' a node'} failed: {error}{where}")
    if isinstance(error, ErrorMessage):
        return _server_error(error, where)
    return Fatal(f"the CQL driver can't continue: {type(error).__name__}: {error}{where}")


def _missing_right(message: str, query: str) -> str:
    """The right to grant: the one that the server names, else the one that the query needs."""
    named = re.search(r"\b(SELECT|MODIFY|CREATE|ALTER|DROP)\b permission", message)
    first = query.split(maxsplit=1)[0].upper() if query.strip() else ""
    right = named[1] if named else {"SELECT": "SELECT", "CREATE": "CREATE", "ALTER": "ALTER"}.get(first, "MODIFY")
    return f"grant {right} on what the query {'reads' if right == 'SELECT' else 'changes'}"


def oversized_message(error: BaseException) -> str:
    """The text of a node that refuses a write as too large, which stays so; empty: another error."""
    causes = getattr(error, "errors", None)
    for cause in [error, *(causes.values() if isinstance(causes, dict) else ())]:
        message = str(cause)
        if any(part in message.lower() for part in _TOO_LARGE):
            return message
    return ""


def _shorten_query(query: str) -> str:
    return query if len(query) <= 300 else query[:297] + "..."


def _format_node(host: Any) -> str:
    return str(getattr(host, "endpoint", host))


def _login_error(message: str, where: str, kind: type[ConfigInvalid] = ConfigInvalid) -> MillraceError:
    if any(part in message.lower() for part in _PASSING_LOGIN):
        return Retriable(f"a node could not check the credentials ({message}){where}")
    return kind(f"the cluster refuses the credentials ({message}); check the user and the password{where}")


def explain_error(error: MillraceError, refusal: str | None) -> MillraceError:
    """The error of a query, or what is behind it: no node can be asked because new connections are not let in.

    Args:
        error: as ``translate_error`` made it.
        refusal: what a node said at the last attempt to connect, if it refused the credentials.
    """
    return error if refusal is None or not isinstance(error, NodesAway) else _login_error(refusal, "", CqlLoginRefused)


def _no_host(error: Any, where: str, asked: str) -> MillraceError:
    from cassandra import AuthenticationFailed, InvalidRequest

    reasons = dict(error.errors) if isinstance(error.errors, dict) else {}
    causes = list(reasons.values())
    refused = [cause for cause in causes if isinstance(cause, AuthenticationFailed)]
    if refused:
        return _login_error(str(refused[0]), where)
    for cause in causes:
        if isinstance(cause, InvalidRequest):
            return _refusal_error(str(cause), where)
        if "CERTIFICATE_VERIFY_FAILED" in str(cause):
            return ConfigInvalid(
                f"a node's certificate is not believed: {cause}{where}; check the trust store and whether the "
                "certificate has the node's address in it, or switch the check of host names off"
            )
    answers = "; ".join(
        f"{_format_node(host)}: {type(cause).__name__}: {cause}" for host, cause in list(reasons.items())[:5]
    )
    busy = any("busy" in type(cause).__name__.lower() or "overloaded" in str(cause).lower() for cause in causes)
    kind = Retriable if busy else NodesAway
    answers = answers or f"none of{asked or ' them'} is up"
    return kind(
        f"no node could answer: {answers}{where}; check that the nodes are up and reachable from here, and that the local "
        "data centre's name is right"
    )


def _refusal_error(message: str, where: str) -> MillraceError:
    if any(part in message.lower() for part in _GONE):
        return SchemaChanged(f"the schema is not as expected: {message}{where}")
    return Fatal(f"the server refuses the query: {message}{where}")


def _server_error(error: Any, where: str) -> MillraceError:
    name, message = type(error).__name__, str(getattr(error, "message", error))
    if name in {
        "SyntaxException",
        "ConfigurationException",
        "UnauthorizedErrorMessage",
        "BadCredentials",
        "FunctionFailureMessage",
    }:
        return Fatal(f"the server refuses the query: {message}{where}")
    if name == "ProtocolException" and "consistency" not in message.lower():
        return Fatal(f"the server does not understand the request: {message}{where}")
    # Overloaded, bootstrapping, truncating, rate limited, an internal error of one node: worth another try.
    return Retriable(f"the server could not answer now: {name}: {message}{where}")
