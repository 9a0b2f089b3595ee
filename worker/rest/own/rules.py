"""``/rules``: what rules of the connector ``logs`` make of lines, before they are used. Not in Kafka Connect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from aiohttp import web

from worker.rest.call import encode_body, json_answer
from worker.rest.facade import RestError
from worker.rest.operations import CONFLICT, FORWARD, UNKNOWN, Operation, QueryParameter, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes import bodies
from worker.rest.shapes.rule_schemas import (
    MOST_LINES,
    Replay,
    ReplayRequest,
    RulesDiff,
    RulesDiffRequest,
    RulesPreview,
    RulesPreviewRequest,
    RulesProposal,
    RulesProposalRequest,
    UnknownLines,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.rest.call import RestCall


async def preview_rules(call: RestCall) -> web.Response:
    """``POST /rules/preview``."""
    request = bodies.read_rules_preview(await call.request.read())
    lines, origins = await _find_lines(call, request)
    # Imported where it is needed: workers without logs do not load its pattern library.
    from connectors.logs.rules.tools.trials import preview_lines

    shown = await asyncio.to_thread(preview_lines, request["rules"], lines, origins=origins)
    name = request.get("connector")
    conflicts, warnings = ([], []) if name is None else await call.herder.logs.rule_conflicts(name, request["rules"])
    # The answer may be large: it is not decoded for one more member.
    return _json_answer(
        shown[:-1] + b',"conflicts":' + encode_body(conflicts) + b',"warnings":' + encode_body(warnings) + b"}"
    )


async def compare_rules(call: RestCall) -> web.Response:
    """``POST /rules/diff``."""
    request = bodies.read_rules_diff(await call.request.read())
    lines, origins = await _find_lines(call, request)
    from connectors.logs.rules.tools.trials import compare_lines

    return _json_answer(
        await asyncio.to_thread(compare_lines, request["before"], request["after"], lines, origins=origins)
    )


async def propose_for_body(call: RestCall) -> web.Response:
    """``POST /rules/propose``."""
    request = bodies.read_rules_proposal(await call.request.read())
    from connectors.logs.rules.tools.trials import propose_for_lines

    return _json_answer(await asyncio.to_thread(propose_for_lines, request["lines"], request["table"]))


async def list_unknown(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/unknown``: the newest unknown lines by pattern, with a rule for each."""
    unknown_lines = await call.herder.logs.unknown_lines(call.connector, _read_count(call.request))
    from connectors.logs.rules.tools.proposals import propose_rules

    lines = [entry["line"] for entry in unknown_lines.pop("lines")]
    table = call.request.query.get("table", "lines")
    if not table.isidentifier() or not table.isascii():
        raise RestError(400, f"The table of the proposed rules can't be {table!r}: use letters, digits and underscores")
    patterns = await asyncio.to_thread(propose_rules, lines, table)
    shown = [{"pattern": p.pattern, "count": p.count, "examples": p.examples, "rules": p.rules} for p in patterns]
    return json_answer({"connector": call.connector, **unknown_lines, "lines": len(lines), "patterns": shown})


async def start_replay(call: RestCall) -> web.Response:
    """``POST /connectors/{connector}/replay``: 201 with the request as it is kept, among the connector's snapshots."""
    request = bodies.read_replay(await call.request.read())
    named = {"id": request.pop("id")} if "id" in request else {}
    asked = await call.herder.snapshots.create_snapshot(call.connector, {"replay": request, **named})
    asked["replay"] = {key: value for key, value in asked["replay"].items() if key != "earlier"}
    return json_answer(
        asked, 201, {"Location": f"{call.location(call.connector)}/snapshots/{quote(asked['id'], safe='')}"}
    )


async def list_replays(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/replay``: the replays with their progress."""
    return json_answer(
        [asked for asked in await call.herder.snapshots.list_snapshots(call.connector) if "replay" in asked]
    )


def _read_count(request: web.Request) -> int:
    """How many lines are asked for."""
    raw = request.query.get("lines", "1000")
    if not raw.isascii() or not raw.isdecimal() or not 1 <= int(raw[:9]) <= MOST_LINES:
        raise RestError(400, f"The parameter 'lines' must be a whole number from 1 to {MOST_LINES}, not {raw!r}")
    return int(raw)


async def _find_lines(call: RestCall, request: Mapping[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """The lines of a request, and where they come from: given ones, or a connector's."""
    name, lines = request.get("connector"), request.get("lines")
    if name is None:
        if lines is None:
            raise RestError(
                400, "The field 'lines' is missing: a list of raw lines is expected, or a 'connector' to take them from"
            )
        return lines, []
    if lines is not None:
        raise RestError(400, "Give either 'lines' or a 'connector' to take them from; both are there")
    call.principal.require(RequiredAccess.ADMIN, name)
    if request["source"] == "UNKNOWN":
        newest = (await call.herder.logs.unknown_lines(name, request["count"]))["lines"]
    else:
        newest = await call.herder.logs.recent_lines(name, request["count"])
    return [entry["line"] for entry in newest], [entry["origin"] for entry in newest]


def _json_answer(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


RULES = {
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

_AWAY = "Kafka, the source or the task hosts do not answer now."
_TRIED = {
    400: "The rules can't work, lines are too many, the connector's lines can't be read back, or the body is not understood.",
    404: UNKNOWN,
    409: CONFLICT,
    503: _AWAY,
}

# Rules cost the worker time: no less than creating a connector.
ROUTES = (
    RestRoute(
        "POST",
        "/rules/preview",
        preview_rules,
        RequiredAccess.ADMIN,
        operation=Operation(
            "previewRules",
            "Lines through every step of a rule set of the connector `logs`, without writing anything.",
            Tag.RULES,
            {200: Reply("Each step with the lines that reached it, and each line with its rows.", RulesPreview)},
            _TRIED,
            (FORWARD,),
            RulesPreviewRequest,
            {
                "two lines": {"rules": RULES, "lines": ["10.0.0.1 GET /", "no request"]},
                "a connector": {"rules": RULES, "connector": "access", "count": 500},
            },
            note="Takes about 10 s at most. Lines times steps may be 100,000 at most.",
            kafka=False,
        ),
    ),
    RestRoute(
        "POST",
        "/rules/diff",
        compare_rules,
        RequiredAccess.ADMIN,
        operation=Operation(
            "diffRules",
            "The lines of which two versions of a rule set make different rows.",
            Tag.RULES,
            {200: Reply("The lines, versions that must rise, and golden lines that fail.", RulesDiff)},
            _TRIED,
            (FORWARD,),
            RulesDiffRequest,
            {"the same rules": {"before": RULES, "after": RULES, "lines": ["10.0.0.1 GET /"]}},
            note="Takes about 10 s at most.",
            kafka=False,
        ),
    ),
    RestRoute(
        "POST",
        "/rules/propose",
        propose_for_body,
        RequiredAccess.ADMIN,
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
    RestRoute(
        "GET",
        "/connectors/{connector}/unknown",
        list_unknown,
        RequiredAccess.ADMIN,
        operation=Operation(
            "listUnknownLines",
            "The newest lines that no rule of a connector of class `logs` accepted, by pattern, with a rule for each pattern.",
            Tag.RULES,
            {200: Reply("The patterns, those with the most lines first.", UnknownLines)},
            {400: "It is not of class `logs`, or a parameter is wrong.", 404: UNKNOWN, 503: _AWAY},
            (
                QueryParameter("lines", f"How many of the newest lines to look at; at most {MOST_LINES}.", int, 1000),
                QueryParameter("table", "The table of the proposed rules.", str, "lines"),
            ),
            note="Reads at most 16 MiB of the topic of `unknown_table`. No consumer group takes part.",
            kafka=False,
        ),
    ),
    RestRoute(
        "POST",
        "/connectors/{connector}/replay",
        start_replay,
        RequiredAccess.OPERATE,
        operation=Operation(
            "replayLines",
            "Give the lines of `unknown_table`, or of the input, to the rules of a connector of class `logs` again.",
            Tag.RULES,
            {201: Reply("The request as it is kept.", Replay, location=True)},
            {
                400: "It is not of class `logs`, its input can't be read again, or the body is not understood.",
                404: UNKNOWN,
                409: f"There is one of this id. {CONFLICT}",
            },
            (FORWARD,),
            ReplayRequest,
            {
                "all unknown lines": {},
                "unknown since a time": {"since": "2026-11-26T17:00:00Z", "id": "again-1"},
                "all lines": {"source": "INPUT", "replaces": 3},
            },
            note="A replay is one of the connector's snapshots: it is paused, resumed, cancelled and deleted as these are.",
            kafka=False,
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/replay",
        list_replays,
        operation=Operation(
            "listReplays",
            "The replays of a connector with their progress.",
            Tag.RULES,
            {200: Reply("Those that were asked for.", list[Replay])},
            {400: "It is not of class `logs`.", 404: UNKNOWN},
            kafka=False,
        ),
    ),
)
