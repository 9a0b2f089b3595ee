"""``/rules``: the rule sets of the connector ``logs`` that the cluster keeps, with their versions. Not in Kafka Connect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from worker.rest.call import empty_answer, json_answer
from worker.rest.facade import RestError
from worker.rest.operations import CONFLICT, FORWARD, QueryParameter, Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.own.rules import RULES
from worker.rest.routing import RequiredAccess
from worker.rest.shapes import bodies
from worker.rest.shapes.rule_schemas import RuleSet, RuleSetInfo, RuleSetRequest, RuleVersion, RuleVersionRules

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall

_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z", re.ASCII)


async def list_all(call: RestCall) -> web.Response:
    """``GET /rules``."""
    return json_answer(await call.herder.rules.rule_sets())


async def get_rules(call: RestCall) -> web.Response:
    """``GET /rules/{rules}``."""
    return json_answer(await call.herder.rules.rule_set(call.parameters["rules"]))


async def list_versions(call: RestCall) -> web.Response:
    """``GET /rules/{rules}/versions``."""
    return json_answer(await call.herder.rules.rule_versions(call.parameters["rules"]))


async def get_version(call: RestCall) -> web.Response:
    """``GET /rules/{rules}/versions/{version}``."""
    name, number = call.parameters["rules"], call.parameters["version"]
    if not _NUMBER.match(number):
        raise RestError(404, f"Rule set {name} has no version {number}")
    return json_answer(await call.herder.rules.rule_version(name, int(number)))


async def put_rules(call: RestCall) -> web.Response:
    """``PUT /rules/{rules}``: 201 for a new rule set, 200 for a new version or for what is the newest one already."""
    request = bodies.read_rule_set(await call.request.read())
    force = call.flag("force", default=False)
    created, saved = await call.herder.rules.put_rules(
        call.parameters["rules"], request["rules"], force=force, comment=request["comment"]
    )
    return json_answer(saved, 201 if created else 200)


async def delete_rules(call: RestCall) -> web.Response:
    """``DELETE /rules/{rules}``."""
    await call.herder.rules.delete_rules(call.parameters["rules"])
    return empty_answer(204)


_PATH = "/rules/{rules}"
_UNKNOWN = {404: "There is no such rule set, or no such version of it."}

_RULES: Final = OwnRoutes(Tag.RULES)

ROUTES = (
    _RULES.get(
        "/rules",
        list_all,
        "listRuleSets",
        "The rule sets that the cluster keeps.",
        Reply("All of them, sorted by name.", list[RuleSetInfo]),
    ),
    _RULES.get(
        _PATH,
        get_rules,
        "getRuleSet",
        "A rule set, with the rules of its newest version.",
        Reply("The rule set.", RuleSet),
        _UNKNOWN,
    ),
    _RULES.put(
        _PATH,
        put_rules,
        "putRuleSet",
        "Save a rule set as a new version. Running connectors that name it without a version take it over.",
        {
            200: Reply("A new version, or the newest one if it has the same rules.", RuleSet),
            201: Reply("The first version of a new rule set.", RuleSet),
        },
        {
            400: "The rules can't work, or without `force`: golden lines make other rows, a table's version has to rise, "
            "or a connector or its schema registry refuses them.",
            409: CONFLICT,
            503: "A connector that names the rule set, or its schema registry, does not answer now.",
        },
        query=(
            QueryParameter(
                "force",
                "Save it although golden lines fail or something else speaks against it.",
                bool,
                default=False,
            ),
            FORWARD,
        ),
        body=RuleSetRequest,
        examples={"a rule set": {"rules": RULES, "comment": "the first rules"}},
        access=RequiredAccess.ADMIN,
    ),
    _RULES.delete(
        _PATH,
        delete_rules,
        "deleteRuleSet",
        "Delete a rule set with all its versions.",
        {204: Reply("It is deleted.")},
        {**_UNKNOWN, 409: f"A connector names it. {CONFLICT}"},
        query=(FORWARD,),
        access=RequiredAccess.ADMIN,
    ),
    _RULES.get(
        f"{_PATH}/versions",
        list_versions,
        "listRuleVersions",
        "The versions of a rule set.",
        Reply("The newest first.", list[RuleVersion]),
        _UNKNOWN,
    ),
    _RULES.get(
        f"{_PATH}/versions/{{version}}",
        get_version,
        "getRuleVersion",
        "One version of a rule set.",
        Reply("The version with its rules.", RuleVersionRules),
        _UNKNOWN,
    ),
)
