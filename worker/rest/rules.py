"""``/rules``: what rules of the connector ``logs`` make of lines, before they are used. Not in Kafka Connect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from worker.rest import bodies
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import Access, Route
from worker.rest.rule_schemas import (
    RulesDiff,
    RulesDiffRequest,
    RulesPreview,
    RulesPreviewRequest,
    RulesProposal,
    RulesProposalRequest,
)

if TYPE_CHECKING:
    from worker.rest.call import Call


async def preview(call: Call) -> web.Response:
    """``POST /rules/preview``."""
    request = bodies.read_rules_preview(await call.request.read())
    # Imported where it is needed: workers without logs do not load its pattern library.
    from connectors.logs.rules.trials import preview_lines

    return _answer(await asyncio.to_thread(preview_lines, request["rules"], request["lines"]))


async def diff(call: Call) -> web.Response:
    """``POST /rules/diff``."""
    request = bodies.read_rules_diff(await call.request.read())
    from connectors.logs.rules.trials import compare_lines

    return _answer(await asyncio.to_thread(compare_lines, request["before"], request["after"], request["lines"]))


async def propose(call: Call) -> web.Response:
    """``POST /rules/propose``."""
    request = bodies.read_rules_proposal(await call.request.read())
    from connectors.logs.rules.trials import propose_for_lines

    return _answer(await asyncio.to_thread(propose_for_lines, request["lines"], request["table"]))


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


_RULES = {
    "tables": [
        {
            "name": "requests",
            "groups": [
                {
                    "name": "get",
                    "steps": [
                        {"regexExtract": {"pattern": r"^(?P<ip>[0-9.]+) GET (?P<path>\S+)$"}},
                        {"saveAs": {"columns": [{"name": "ip"}, {"name": "path"}]}},
                    ],
                }
            ],
        }
    ]
}

# Rules cost the worker time: no less than creating a connector.
ROUTES = (
    Route(
        "POST",
        "/rules/preview",
        preview,
        Access.ADMIN,
        operation=Operation(
            "previewRules",
            "Lines through every step of a rule set of the connector `logs`, without writing anything.",
            Tag.RULES,
            {200: Reply("Each step with the lines that reached it, and each line with its rows.", RulesPreview)},
            {400: "The rules can't work, lines are too many, or the body is not understood."},
            body=RulesPreviewRequest,
            examples={"two lines": {"rules": _RULES, "lines": ["10.0.0.1 GET /", "no request"]}},
            note="Takes about 10 s at most. Lines times steps may be 100,000 at most.",
            kafka=False,
        ),
    ),
    Route(
        "POST",
        "/rules/diff",
        diff,
        Access.ADMIN,
        operation=Operation(
            "diffRules",
            "The lines of which two versions of a rule set make different rows.",
            Tag.RULES,
            {200: Reply("The lines, versions that must rise, and golden lines that fail.", RulesDiff)},
            {400: "The rules can't work, lines are too many, or the body is not understood."},
            body=RulesDiffRequest,
            examples={"the same rules": {"before": _RULES, "after": _RULES, "lines": ["10.0.0.1 GET /"]}},
            note="Takes about 10 s at most.",
            kafka=False,
        ),
    ),
    Route(
        "POST",
        "/rules/propose",
        propose,
        Access.ADMIN,
        operation=Operation(
            "proposeRules",
            "Patterns of lines that no rule accepts yet, and a rule for each.",
            Tag.RULES,
            {200: Reply("The patterns, those with the most lines first.", RulesProposal)},
            {400: "Lines are too many or too long, or the body is not understood."},
            body=RulesProposalRequest,
            examples={"two lines": {"lines": ["job 7 took=12ms", "job 8 took=9ms"], "table": "jobs"}},
            note="Each proposed rule accepts all lines of its pattern.",
            kafka=False,
        ),
    ),
)
