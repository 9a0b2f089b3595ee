"""The console's part of REST: files, sessions, rows and streams."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from yarl import URL

from offsets.records import ReportedStatus
from tests.support.eventually import eventually_async
from worker.console.assets import STATIC
from worker.console.feed import RowFeed
from worker.console.libraries import FILES, adapt_imports
from worker.console.routes import FEATURES
from worker.console.rows import build_row, first_line, sum_reports
from worker.console.sessions import Sessions
from worker.rest.security.access import Principal, parse_grants

from .memory_herder import MemoryHerder
from .security import basic, write_users

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .conftest import Rest, Start

USERS = {"reader": "read", "chief": "admin", "seller": "read:sales-.*,operate:sales-eu"}


@pytest.fixture
async def closed(start: Start, tmp_path: Path) -> tuple[Rest, MemoryHerder]:
    """A server that asks who its callers are."""
    call, herder = await start(rest_authentication="basic", rest_auth_users_file=write_users(tmp_path / "users", USERS))
    for name in ("sales-eu", "sales-us", "stock"):
        herder.configs[name], herder.states[name] = {"connector.class": "B"}, "RUNNING"
    return call, herder


async def log_in(call: Rest, name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The headers of a session, and what the console knows of it."""
    reply = await call("POST", "/console/session", headers=basic(name, name[::-1]))
    assert reply.status == 200
    cookie = reply.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    return {"Cookie": cookie.partition(";")[0]}, reply.json


# Files.


async def test_the_page_has_a_strict_policy_and_no_script_of_its_own(rest: tuple[Rest, MemoryHerder]) -> None:
    reply = await rest[0]("GET", "/console")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"<style" not in reply.raw
    assert b" style=" not in reply.raw
    assert reply.raw.count(b"<script") == reply.raw.count(b'<script type="module" src="console/')


async def test_the_page_is_found_under_any_prefix(rest: tuple[Rest, MemoryHerder]) -> None:
    reply = await rest[0]("GET", "/console/")
    assert (reply.status, reply.headers["Location"]) == (308, "../console")


async def test_files_are_compressed_and_sent_once(rest: tuple[Rest, MemoryHerder]) -> None:
    call, _ = rest
    first = await call("GET", "/console/app.js", headers={"Accept-Encoding": "gzip"})
    assert first.headers["Content-Encoding"] == "gzip"
    assert first.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert first.raw == (STATIC / "app.js").read_bytes()
    repeated = await call("GET", "/console/app.js", headers={"If-None-Match": first.headers["ETag"]})
    assert (repeated.status, repeated.raw) == (304, b"")


async def test_all_files_of_each_page_are_below_300_kb(rest: tuple[Rest, MemoryHerder]) -> None:
    names = [*FILES, *(path.name for path in STATIC.iterdir())]
    replies = {name: await rest[0]("GET", "/console" if name == "index.html" else f"/console/{name}") for name in names}
    assert {reply.status for reply in replies.values()} == {200}
    sizes = {name: len(gzip.compress(reply.raw, 9)) for name, reply in replies.items()}
    sources = {name: reply.raw.decode() for name, reply in replies.items()}
    always = {name for name in names if not name.endswith(".js")} | modules("app.js", sources)
    later = {page for name in always for page in re.findall(r'import\("\./([^"]+)"\)', sources[name])}
    assert {"connector.js", "flows.js", "rules.js"} <= later
    for page in later:
        assert sum(sizes[name] for name in always | modules(page, sources)) < 300_000, page


def modules(first: str, sources: Mapping[str, str]) -> set[str]:
    """A module and those that it imports."""
    reached: set[str] = set()
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += re.findall(r'(?:from|import)\s*["\']\./([^"\']+)["\']', sources[name])
    return reached


@pytest.mark.parametrize("name", ["..%2Froutes.py", "nope.js", "routes.py", "%2Fetc%2Fpasswd"])
async def test_nothing_else_is_sent(rest: tuple[Rest, MemoryHerder], name: str) -> None:
    assert (await rest[0]("GET", f"/console/{name}")).status == 404


def test_modules_of_others_name_each_other_by_path() -> None:
    source = b"import{options as n}from\"preact\";import { elt } from 'crelt';a\n//# sourceMappingURL=x.map\n"
    assert adapt_imports(source) == b"import{options as n}from\"./preact.js\";import { elt } from './crelt.js';a\n\n"


def test_comments_of_modules_are_left_out_and_nothing_else() -> None:
    source = b"/**\nWhat it is.\n*/\na = 1; /* b */\n  // c\n/* d */ e = '//f';\n/*\ng\n*/\nh\n"
    assert adapt_imports(source) == b"a = 1; /* b */\n/* d */ e = '//f';\nh\n"


# Sessions.


async def test_a_session_stands_for_its_credentials(closed: tuple[Rest, MemoryHerder]) -> None:
    call, _ = closed
    session, said = await log_in(call, "chief")
    assert (said["name"], said["role"]) == ("chief", "admin")
    assert (await call("GET", "/connectors", headers=session)).json == ["sales-eu", "sales-us", "stock"]
    caller = (await call("GET", "/console/session", headers=session)).json
    assert (caller["proof"], caller["method"]) == (said["proof"], "session")
    assert "feihc" not in json.dumps(said)


async def test_changes_need_the_proof_that_another_origin_can_not_send(closed: tuple[Rest, MemoryHerder]) -> None:
    call, herder = closed
    session, said = await log_in(call, "chief")
    for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "x" * 48}):
        refused = await call("DELETE", "/connectors/stock", headers={**session, **wrong})
        assert (refused.status, "X-CSRF-Token" in refused.error) == (403, True)
    assert "stock" in herder.configs
    assert (await call("DELETE", "/connectors/stock", headers={**session, "X-CSRF-Token": said["proof"]})).status == 204


async def test_a_session_ends_by_logging_out(closed: tuple[Rest, MemoryHerder]) -> None:
    call, _ = closed
    session, said = await log_in(call, "chief")
    proof = {"X-CSRF-Token": said["proof"]}
    ended = await call("DELETE", "/console/session", headers={**session, **proof})
    assert (ended.status, "Max-Age=0" in ended.headers["Set-Cookie"]) == (204, True)
    assert (await call("GET", "/connectors", headers=session)).status == 401


async def test_a_browser_is_not_made_to_ask_for_a_password(closed: tuple[Rest, MemoryHerder]) -> None:
    call, _ = closed
    for path, headers in (("/console/session", {}), ("/connectors", {"X-CSRF-Token": ""}), ("/console/events", {})):
        reply = await call("GET", path, headers=headers)
        assert (reply.status, "WWW-Authenticate" in reply.headers) == (401, False)
    assert "WWW-Authenticate" in (await call("GET", "/connectors")).headers


async def test_a_cookie_that_nobody_has_given_opens_nothing(closed: tuple[Rest, MemoryHerder]) -> None:
    call, _ = closed
    session, _ = await log_in(call, "chief")
    name = session["Cookie"].partition("=")[0]
    for value in ("", "x", "A" * 43 + "=", "%00"):
        assert (await call("GET", "/connectors", headers={"Cookie": f"{name}={value}"})).status == 401


async def test_who_is_removed_has_no_session_any_more(start: Start, tmp_path: Path) -> None:
    users = tmp_path / "users"
    call, _ = await start(rest_authentication="basic", rest_auth_users_file=write_users(users, USERS))
    session, _ = await log_in(call, "chief")
    write_users(users, {"reader": "read"})

    async def is_closed() -> bool:
        return (await call("GET", "/connectors", headers=session)).status == 401

    await eventually_async(is_closed, "the session ends", 30)


async def test_without_authentication_there_is_no_cookie(rest: tuple[Rest, MemoryHerder]) -> None:
    reply = await rest[0]("POST", "/console/session")
    assert (reply.status, "Set-Cookie" in reply.headers) == (200, False)
    assert reply.json == {
        "name": "anonymous",
        "method": "none",
        "role": "admin",
        "roles": ["admin"],
        "proof": None,
        "features": list(FEATURES),
        "cluster": None,
        "lacks": [],
        "trouble": None,
    }


def test_a_session_ends_in_time_and_its_secret_is_not_kept() -> None:
    now = [0.0]
    sessions = Sessions(10.0, lambda: "a", lambda: now[0])
    value, opened = sessions.open("Basic c2VjcmV0")
    cookies = {sessions.cookie: value}
    assert sessions.find(cookies) == opened
    assert b"c2VjcmV0" not in b"".join(kept.sealed for kept in sessions._kept.values())
    now[0] = 10.0
    assert sessions.find(cookies) is None
    assert len(sessions) == 0


def test_sessions_are_bounded() -> None:
    sessions = Sessions(10.0, lambda: "a")
    first, _ = sessions.open("a")
    for number in range(1000):
        sessions.open(str(number))
    assert len(sessions) == 1000
    assert sessions.find({sessions.cookie: first}) is None


# Rows and streams.


def status(state: str, worker: str = "w:1", trace: str | None = None) -> ReportedStatus:
    return ReportedStatus(state=state, trace=trace, worker_id=worker, generation=1)  # type: ignore[arg-type]


def test_a_row_tells_what_is_worst() -> None:
    shown = build_row(
        "a",
        {"connector.class": "B"},
        "source",
        status("RUNNING"),
        [status("RUNNING"), status("FAILED", "w:2", "Fatal: no\nTraceback"), None],
        (12.345, 0.0456),
    )
    assert shown["tasks"] == {"RUNNING": 1, "FAILED": 1, "UNASSIGNED": 1}
    assert (shown["error"], shown["workers"]) == ("Fatal: no", ["w:1", "w:2"])
    assert (shown["rate"], shown["lag_s"]) == (12.0, 0.046)
    assert build_row("a", {}, "sink", None, [], None)["state"] == "UNASSIGNED"


def test_rates_of_workers_are_added_and_the_largest_lag_counts() -> None:
    reports: list[Mapping[str, tuple[float, float | None]]] = [{"a": (1.0, None)}, {"a": (2.0, 3.0), "b": (1.0, None)}]
    assert sum_reports([*reports, {"a": (0.5, 1.0)}]) == {"a": (3.5, 3.0), "b": (1.0, None)}
    assert first_line(None) == ""


async def test_rows_are_those_that_the_caller_may_read(closed: tuple[Rest, MemoryHerder]) -> None:
    call, _ = closed
    rows = (await call("GET", "/console/connectors", headers=basic("seller", "relles"))).json
    assert {shown["name"]: shown["role"] for shown in rows} == {"sales-eu": "operate", "sales-us": "read"}


async def test_secrets_do_not_reach_the_console(rest: tuple[Rest, MemoryHerder]) -> None:
    call, herder = rest
    config = {"connector.class": "B", "x": "hunter2", "y": "plain", "other.password": "hunter3", "z": "${file:/a:b}"}
    await call("PUT", "/connectors/a/config", config)
    shown = (await call("GET", "/console/connectors/a/config")).json
    assert {name: shown[name] for name in ("y", "z")} == {"y": "plain", "z": "${file:/a:b}"}
    assert "hunter" not in json.dumps(shown)
    changed = await call("PATCH", "/console/connectors/a/config", {"y": "other"})
    assert (changed.status, changed.json["y"], b"hunter" in changed.raw) == (200, "other", False)
    assert herder.configs["a"] == {**config, "y": "other", "name": "a"}
    await call("PUT", "/console/connectors/a/check", {"y": None, "w": "1"})
    kind, plugin, checked = herder.calls[-1]
    assert (kind, plugin) == ("validate", "B")
    assert checked == {"connector.class": "B", "x": "hunter2", "other.password": "hunter3", "z": "${file:/a:b}", "w": "1",
                       "name": "a"}  # fmt: skip


async def test_what_stands_for_a_secret_does_not_become_one(rest: tuple[Rest, MemoryHerder]) -> None:
    call, herder = rest
    config = {"connector.class": "B", "x": "hunter2", "url": "jdbc:postgresql://me:hunter3@old/shop"}
    await call("PUT", "/connectors/a/config", config)
    shown = (await call("GET", "/console/connectors/a/config")).json
    assert shown["url"] == "jdbc:postgresql://me:[hidden]@old/shop"
    # What is sent back as it was shown stays as it is.
    assert (await call("PATCH", "/console/connectors/a/config", {**shown, "y": "1"})).status == 200
    assert herder.configs["a"] == {**config, "y": "1", "name": "a"}
    # An edit around the hidden password would save the word in its place.
    edit = {"url": shown["url"].replace("old", "new")}
    for method, path in (("PATCH", "config"), ("PUT", "check"), ("PUT", "tables")):
        refused = await call(method, f"/console/connectors/a/{path}", edit)
        assert (refused.status, refused.error.partition(":")[0]) == (400, "url")
    assert herder.configs["a"]["url"] == config["url"]


class Stream:
    """Events as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._lines = response.content
        self.status = response.status

    async def next(self) -> tuple[str, Any]:
        """The next event and its data."""
        event = ""
        async with asyncio.timeout(20):
            while True:
                line = (await self._lines.readline()).decode().rstrip("\n")
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    return event, json.loads(line.removeprefix("data: "))


async def test_a_stream_tells_all_and_then_what_changes(closed: tuple[Rest, MemoryHerder]) -> None:
    call, herder = closed
    async with (
        aiohttp.ClientSession() as session,
        session.get(URL(f"{call.url}/console/events"), headers=basic("seller", "relles")) as response,
    ):
        stream = Stream(response)
        event, first = await stream.next()
        assert (event, first["all"], [row["name"] for row in first["rows"]]) == (
            "rows",
            True,
            ["sales-eu", "sales-us"],
        )
        assert [row["role"] for row in first["rows"]] == ["operate", "read"]
        del herder.configs["sales-us"]
        herder.configs["sales-de"] = {"connector.class": "B"}
        herder.configs["hidden"] = {"connector.class": "B"}
        _, change = await stream.next()
        assert (change["all"], [row["name"] for row in change["rows"]], change["gone"]) == (
            False,
            ["sales-de"],
            ["sales-us"],
        )


async def test_rows_are_put_together_once_for_all_who_may_the_same() -> None:
    herder = MemoryHerder()
    feed = RowFeed(herder)
    herder.configs["a"], herder.states["a"] = {"connector.class": "B"}, "RUNNING"
    await feed.refresh()
    first = feed.version
    everybody, reader = (
        Principal(name, "basic", parse_grants(grants)) for name, grants in (("x", "admin"), ("y", "read:b.*"))
    )
    other = Principal("z", "basic", everybody.grants)
    assert feed.news(everybody) is feed.news(other)
    assert feed.news(reader) == b""
    await feed.refresh()
    assert feed.version == first
    herder.configs["b"], herder.states["b"] = {"connector.class": "B"}, "RUNNING"
    await feed.refresh()
    assert feed.version == first + 1
    assert [row["name"] for row in json.loads(feed.news(reader).partition(b"data: ")[2])["rows"]] == ["b"]
    del herder.configs["a"]
    await feed.refresh()
    assert json.loads(feed.news(everybody).partition(b"data: ")[2])["gone"] == ["a"]
    assert feed.news(reader) == b""


async def test_a_stream_of_one_connector(closed: tuple[Rest, MemoryHerder]) -> None:
    call, herder = closed
    refused = await call("GET", "/console/events?connector=stock", headers=basic("seller", "relles"))
    assert refused.status == 403
    async with (
        aiohttp.ClientSession() as session,
        session.get(URL(f"{call.url}/console/events?connector=stock"), headers=basic("reader", "redaer")) as response,
    ):
        stream = Stream(response)
        event, message = await stream.next()
        assert (event, message["status"]["name"], message["role"]) == ("connector", "stock", "read")
        del herder.configs["stock"]
        while message["status"] is not None:
            _, message = await stream.next()


async def test_a_stream_ends_before_its_deadline_for_the_browser_to_come_again(start: Start) -> None:
    call, _ = await start(rest_request_timeout_ms="500")
    reply = await call("GET", "/console/events")
    assert reply.status == 200
    assert reply.raw.startswith(b"retry: 1000\n\nevent: rows\ndata: ")
    assert b"error_code" not in reply.raw
