"""``/console/rules``: what the page of log rules needs in addition to ``/rules``. Not in Kafka Connect."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final

import yaml

from worker.rest.call import json_answer
from worker.rest.operations import Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.own.rules import RULES
from worker.rest.routing import RequiredAccess
from worker.rest.shapes import bodies
from worker.rest.shapes.rule_schemas import ReadRules, RuleOperator, RulesRead

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def list_operators(_: RestCall) -> web.Response:
    """``GET /console/rules/operators``."""
    # Imported where it is needed: workers without logs do not load its operators.
    from connectors.logs.rules.operators import OPERATORS
    from connectors.logs.rules.options import describe_options

    return json_answer(
        [
            {
                "name": name,
                "text": (inspect.getdoc(operator) or "").partition("\n")[0],
                "options": [option._asdict() for option in describe_options(operator)],
            }
            for name, operator in OPERATORS.items()
        ]
    )


async def read_rules(call: RestCall) -> web.Response:
    """``POST /console/rules/read``."""
    rules = bodies.read_rules(await call.request.read())
    return json_answer(await asyncio.to_thread(both_forms, rules))


def both_forms(rules: Any) -> dict[str, Any]:
    """The rules as an object and as YAML.

    Raises:
        RulesInvalid: the text is not YAML or JSON.
    """
    from connectors.logs.rules.model import decode_rules

    document = decode_rules(rules) if isinstance(rules, str) else rules
    return {"rules": document, "text": yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)}


_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)

ROUTES = (
    _CONSOLE.get(
        "/console/rules/operators",
        list_operators,
        "listRuleOperators",
        "The operators of steps of the connector `logs`, with their options.",
        Reply("All of them.", list[RuleOperator]),
    ),
    _CONSOLE.post(
        "/console/rules/read",
        read_rules,
        "readRules",
        "A rule set as an object and as YAML text, whichever of these it is given as. It need not work yet.",
        Reply("Both forms.", ReadRules),
        {400: "The text is not YAML or JSON, or the body is not understood."},
        access=RequiredAccess.ADMIN,
        body=RulesRead,
        examples={"an object": {"rules": RULES}},
    ),
)
