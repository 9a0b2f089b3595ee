"""The OpenAPI 3.1 document of the REST API, made from the routes' declarations. Pure.

Clients and checks can rely on it: ``tests/conformance/rest/test_openapi.py`` holds a running worker against it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from worker import __version__
from worker.rest.operations import JSON, Operation, Tag
from worker.rest.routing import RequiredAccess
from worker.rest.security.signing import ALGORITHM_HEADER, SIGNATURE_HEADER
from worker.rest.shapes.schemas import Error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from worker.rest.routing import RestRoute

_SCHEMAS: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_TITLE: Final = "Millrace"
_INTRO: Final = (
    "The REST API of a Millrace worker: Kafka Connect's, and what Millrace adds to it (`x-kafka-connect` is false). Any "
    "worker answers for the whole cluster. A slash at the end of a path makes no difference; in a name every character but "
    "letters, digits and `-._~` is percent-encoded. `x-role` says what a caller must be allowed to do once access is "
    "restricted; `x-internal` operations are for workers and signed with the cluster's session key."
)
TAGS: Final[dict[Tag, str]] = {
    Tag.WORKER: "This worker.",
    Tag.CONNECTORS: "Connectors: create, read, change, steer, delete.",
    Tag.TASKS: "The tasks of a connector.",
    Tag.OFFSETS: "How far a connector is in its source.",
    Tag.TOPICS: "The topics a connector has written to.",
    Tag.SNAPSHOTS: "Snapshots on request, lag and tables of source connectors.",
    Tag.PLUGINS: "What can be run, with its options.",
    Tag.FLOWS: "What a flow (the configuration of a Spark job) would do, before it runs.",
    Tag.RULES: "Rules of the connector `logs`: what they make of lines before they are used, and rule sets that are kept.",
    Tag.CONSOLE: "The console, and what only its pages ask.",
    Tag.ADMIN: "Loggers, and taking a worker out of service. May be served by listeners of its own (`admin.listeners`).",
    Tag.INTERNAL: "Between workers.",
}
_PARAMETERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "connector": ("The connector's name.", {"type": "string", "minLength": 1}),
    "task": ("The task's number.", {"type": "integer", "format": "int32", "minimum": 0, "maximum": 2**31 - 1}),
    "plugin": ("The plugin's class, its simple name, or that without `Connector`.", {"type": "string", "minLength": 1}),
    "file": ("The file's name.", {"type": "string", "minLength": 1}),
    "logger": ("The logger's name; `root` is the parent of all.", {"type": "string", "minLength": 1}),
    "savepoint": ("The savepoint's name.", {"type": "string", "minLength": 1}),
    "rules": ("The rule set's name: 1 to 100 letters, digits, `.`, `_` and `-`.", {"type": "string", "minLength": 1}),
    "version": ("The version's number.", {"type": "integer", "format": "int32", "minimum": 1, "maximum": 2**31 - 1}),
    "snapshot": ("The snapshot's id.", {"type": "string", "minLength": 1}),
    "topic": ("The topic's name.", {"type": "string", "minLength": 1}),
}
_LEVELS: Final = {RequiredAccess.READ: "read", RequiredAccess.OPERATE: "operate", RequiredAccess.ADMIN: "admin"}


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error that has a place of its own under ``components.responses``."""

    name: str
    doc: str
    headers: Mapping[str, Any] = field(default_factory=dict)


_FAILURES: Final[dict[int, _Failure]] = {
    400: _Failure("BadRequest", "The request is not understood, or can't be carried out."),
    401: _Failure(
        "Unauthorized",
        "The caller has not said who it is, or not convincingly.",
        {"WWW-Authenticate": {"description": "How to.", "schema": {"type": "string"}}},
    ),
    403: _Failure("Forbidden", "The caller may not do this."),
    404: _Failure("NotFound", "There is no such thing."),
    406: _Failure("NotAcceptable", "`Accept` leaves out application/json."),
    408: _Failure("RequestTimeout", "The body did not come in time."),
    409: _Failure("Conflict", "Not now, or not any more."),
    413: _Failure("TooLarge", "The body is larger than `rest.request.max.bytes`."),
    415: _Failure("UnsupportedMediaType", "`Content-Type` is not application/json."),
    429: _Failure(
        "TooManyRequests",
        "The caller asks too often.",
        {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}},
    ),
    500: _Failure(
        "ServerError",
        "The worker could not do it: it took too long, another worker or a task host did not answer, "
        "or something unforeseen has happened, which its log tells.",
    ),
    503: _Failure(
        "Unavailable",
        "The worker is still reading the cluster's state or has too much to do, or what the answer "
        "needs is unavailable. Retry in a moment.",
        {"Retry-After": {"description": "Seconds to wait, where it is known.", "schema": {"type": "integer"}}},
    ),
}


def build_document(
    routes: Sequence[RestRoute],
    url: str,
    *,
    apart: Sequence[RestRoute] = (),
    apart_urls: Sequence[str] = (),
    schemes: Sequence[str] = ("basic", "bearer"),
    optional: bool = True,
) -> dict[str, Any]:
    """The document.

    Args:
        routes: what is served.
        url: address of the server.
        apart: what listeners of their own serve; no path of ``routes``.
        apart_urls: addresses of these listeners.
        schemes: how a caller can say who it is: of basic, bearer and mutualTLS.
        optional: whether it need not say.
    """
    everything = (*routes, *apart)
    types = list(dict.fromkeys(map(_type_key, _body_types(everything))))
    by_key = {_type_key(item): item for item in _body_types(everything)}
    shapes, components = msgspec.json.schema_components([by_key[item] for item in types], ref_template=_SCHEMAS)
    schemas = dict(zip(types, shapes, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    ids = {route.operation.id for route in everything}
    for route in everything:
        security = _describe_security(route.access, schemes, optional=optional)
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route, schemas, security, ids)
    for route in apart:
        paths[route.path]["servers"] = [{"url": item, "description": "admin.listeners"} for item in apart_urls]
    used = {route.operation.tag for route in everything}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": _TITLE,
            "description": _INTRO,
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "tags": [{"name": tag, "description": doc} for tag, doc in TAGS.items() if tag in used],
        "paths": paths,
        "components": {
            "schemas": {name: components[name] for name in sorted(components)},
            "responses": {item.name: _describe_failure(item, schemas[_type_key(Error)]) for item in _FAILURES.values()},
            "securitySchemes": {
                name: scheme for name, scheme in _SECURITY.items() if name in schemes or name == "session"
            },
        },
    }


_SECURITY: Final[dict[str, dict[str, Any]]] = {
    "basic": {"type": "http", "scheme": "basic", "description": "Name and password."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token."},
    "mutualTLS": {"type": "mutualTLS", "description": "The client's certificate."},
    "session": {
        "type": "apiKey",
        "in": "header",
        "name": SIGNATURE_HEADER,
        "description": f"Of workers: the body signed with the session key, the algorithm in {ALGORITHM_HEADER}.",
    },
}


def documented_statuses(route: RestRoute) -> list[int]:
    """All statuses that an operation is documented to answer with. Pure."""
    operation = route.operation
    codes = {*operation.replies, *operation.errors, 500}
    if route.access is not RequiredAccess.PUBLIC:
        codes |= {403, 503}
    if route.access in _LEVELS:
        codes |= {401, 429}
    if route.negotiate:
        codes |= {406, 415}
    if operation.body is not None:
        codes |= {408, 413}
    return sorted(codes)


def _body_types(routes: Iterable[RestRoute]) -> list[Any]:
    body_types: list[Any] = [Error]
    for route in routes:
        operation = route.operation
        body_types += [reply.type for reply in operation.replies.values() if reply.type is not None]
        body_types += [query.type for query in operation.query]
        if operation.body is not None:
            body_types.append(operation.body)
    return body_types


def _type_key(kind: Any) -> str:
    """Types compare by what they are, but ``bool`` and ``Literal`` values do not: their text does."""
    return repr(kind)


def _describe_operation(
    route: RestRoute, schemas: Mapping[str, Any], security: list[dict[str, list[str]]], ids: Collection[str]
) -> dict[str, Any]:
    operation = route.operation
    result: dict[str, Any] = {"operationId": operation.id, "summary": operation.summary, "tags": [operation.tag]}
    if operation.note:
        result["description"] = operation.note
    parameters = [_path_parameter(name) for name in _PARAMETER.findall(route.path)]
    parameters += [_query_parameter(query, schemas[_type_key(query.type)]) for query in operation.query]
    if parameters:
        result["parameters"] = parameters
    if operation.body is not None:
        content: dict[str, Any] = {"schema": schemas[_type_key(operation.body)]}
        if operation.examples:
            content["examples"] = {name: {"value": value} for name, value in operation.examples.items()}
        result["requestBody"] = {"required": True, "content": {JSON: content}}
    result["responses"] = {
        str(status): _describe_response(status, operation, schemas, ids) for status in documented_statuses(route)
    }
    result["security"] = security
    result["x-role"] = route.access.value
    result["x-kafka-connect"] = operation.kafka
    if route.access is RequiredAccess.INTERNAL:
        result["x-internal"] = True
    return result


def _path_parameter(name: str) -> dict[str, Any]:
    doc, schema = _PARAMETERS[name]
    return {"name": name, "in": "path", "required": True, "description": doc, "schema": schema}


def _query_parameter(query: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(schema)
    if query.default is not None:
        shown["default"] = query.default
    result = {"name": query.name, "in": "query", "description": query.doc, "schema": shown}
    if shown.get("type") == "array":
        result |= {"style": "form", "explode": True}
    return result


def _describe_response(
    status: int, operation: Operation, schemas: Mapping[str, Any], ids: Collection[str]
) -> dict[str, Any]:
    reply = operation.replies.get(status)
    if reply is None:
        shared: dict[str, Any] = {"$ref": f"#/components/responses/{_FAILURES[status].name}"}
        if status in operation.errors:
            shared["description"] = operation.errors[status]
        return shared
    result: dict[str, Any] = {"description": reply.doc}
    if reply.location:
        result["headers"] = {"Location": {"description": "Its address.", "schema": {"type": "string", "format": "uri"}}}
    if reply.type is not None:
        result["content"] = {reply.media: {"schema": schemas[_type_key(reply.type)]}}
    links = {
        link.operation: {"operationId": link.operation, "parameters": dict(link.parameters)}
        for link in reply.links
        if link.operation in ids
    }
    if links:
        result["links"] = links
    return result


def _describe_failure(failure: _Failure, error: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"description": failure.doc, "content": {JSON: {"schema": error}}}
    if failure.headers:
        result["headers"] = dict(failure.headers)
    return result


def _describe_security(access: RequiredAccess, schemes: Sequence[str], *, optional: bool) -> list[dict[str, list[str]]]:
    if access is RequiredAccess.INTERNAL:
        return [{"session": []}]
    role = _LEVELS.get(access)
    if role is None:
        return []
    # For schemes other than OAuth, OpenAPI 3.1 allows the role's name here.
    needed: list[dict[str, list[str]]] = [{scheme: [role]} for scheme in schemes]
    return [{}, *needed] if optional else needed
