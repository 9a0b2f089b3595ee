"""``/console/topics``: records of topics, for whoever may see them. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from worker.rest.call import json_answer
from worker.rest.facade import RestError
from worker.rest.operations import QueryParameter, Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.routing import RequiredAccess
from worker.rest.security.access import refuse_access
from worker.rest.shapes.console_schemas import TopicRecords, TopicUse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from worker.rest.call import RestCall
    from worker.rest.security.access import Principal

_FORMS: Final = ("auto", "json", "text", "bytes")
_MOST: Final = 200
_LIMIT: Final = 50
_LONGEST: Final = 4096
_before: Final = msgspec.json.Decoder(dict[int, int], strict=False).decode


def may_see(principal: Principal, users: Mapping[str, str], needed: RequiredAccess) -> bool:
    """Whether a caller has the role for a topic: for the whole cluster, or for a connector that uses it. Pure."""
    return principal.may(needed) or any(principal.may(needed, name) for name in users)


async def list_topics(call: RestCall) -> web.Response:
    """``GET /console/topics``."""
    uses = await call.herder.topics.topic_uses()
    return json_answer(
        [
            {
                "topic": topic,
                "connectors": {
                    name: use for name, use in users.items() if call.principal.may(RequiredAccess.READ, name)
                },
                "masked": not may_see(call.principal, users, RequiredAccess.ADMIN),
            }
            for topic, users in uses.items()
            if may_see(call.principal, users, RequiredAccess.READ)
        ]
    )


async def list_records(call: RestCall) -> web.Response:
    """``GET /console/topics/{topic}``."""
    topic, query = call.parameters["topic"], call.request.query
    users = (await call.herder.topics.topic_uses()).get(topic, {})
    if not may_see(call.principal, users, RequiredAccess.READ):
        raise refuse_access(call.principal, RequiredAccess.READ, None)
    masked = not may_see(call.principal, users, RequiredAccess.ADMIN)
    if masked and (query.get("key") or query.get("where") or query.get("form", "auto") != "auto"):
        # What is hidden could be found out by conditions on it.
        raise RestError(403, f"{call.principal.name} needs the role 'admin' to filter by what is hidden")
    connector = query.get("connector") or next((name for name in sorted(users) if users[name] == "uses"), None)
    if connector is not None and connector not in users:
        call.principal.require(RequiredAccess.ADMIN, connector)
    page = await call.herder.topics.read_topic(topic, connector, {**_read_request(query), "masked": masked})
    return json_answer({**page, "masked": masked})


def _read_request(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that a query stands for.

    Raises:
        RestError: 400.
    """
    limit, form = query.get("limit", str(_LIMIT)), query.get("form", "auto")
    if not limit.isdecimal() or not 1 <= int(limit) <= _MOST:
        raise RestError(400, f"limit: {limit!r} must be a number from 1 to {_MOST}")
    if form not in _FORMS:
        raise RestError(400, f"form: {form!r} must be one of {', '.join(_FORMS)}")
    if any(len(query.get(name, "")) > _LONGEST for name in ("key", "where")):
        raise RestError(400, f"key and where have {_LONGEST} characters at most")
    try:
        before = _before(query.get("before") or "{}")
    except msgspec.MsgspecError as error:
        raise RestError(400, f'before: write an object of partitions and offsets, {{"0": 120}}: {error}') from None
    return {
        "limit": int(limit),
        "form": form,
        "before": before,
        "key": query.get("key", ""),
        "where": query.get("where", ""),
    }


_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)

ROUTES = (
    _CONSOLE.get(
        "/console/topics",
        list_topics,
        "listTopics",
        "The topics that connectors use.",
        Reply("Those that the caller may look into, by name.", list[TopicUse]),
    ),
    _CONSOLE.get(
        "/console/topics/{topic}",
        list_records,
        "readTopic",
        "The newest records of a topic, decoded; without a consumer group.",
        Reply("The newest first. Who is no admin of the topic's connectors sees `***` for values.", TopicRecords),
        {
            400: "A parameter is wrong.",
            403: "The caller may not look into the topic, or filter by what is hidden.",
            404: "There is no such topic.",
            503: "Kafka does not answer in time.",
        },
        query=(
            QueryParameter("limit", f"How many records, up to {_MOST}.", int, _LIMIT),
            QueryParameter(
                "before",
                "As JSON: partition to the offset before which to read; the answer has it for the next page.",
            ),
            QueryParameter("key", "A string that the key contains."),
            QueryParameter("where", "A condition in CEL, such as `value.op == 'd'`."),
            QueryParameter("form", "`auto`, `json`, `text` or `bytes`.", default="auto"),
            QueryParameter("connector", "The connector whose converters decode; by default one that uses the topic."),
        ),
    ),
)
