"""From an empty form to a running connector, for each kind of source (MariaDB: test_database.py, Spark: test_flows.py)."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compose.local.cassandra_cluster import execute_cql
from compose.local.process.service import wait_until
from tests.integration.control._logs import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from compose.local.scylla.client import Emulation
    from compose.local.worker import MillraceWorker
    from tests.conftest import HasCassandra

    from .conftest import View


def make(page: Page, kind: str, name: str, options: dict[str, str]) -> None:
    """Fill the form for a kind, and create the connector."""
    page.get_by_role("link", name="New connector").click()
    # The list of connectors has a search box too, and is still there for a moment.
    expect(page.get_by_role("heading", name="New connector")).to_be_visible()
    page.get_by_role("searchbox").fill(kind)
    page.locator(".plugin").first.click()
    page.get_by_label("name needed", exact=True).fill(name)
    page.get_by_label("All ").check()
    for option, value in options.items():
        page.locator(f"[id='o-{option}']").fill(value)
    page.get_by_role("button", name="Check and create").click()
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")


def wrote(worker: MillraceWorker, name: str, topic: str) -> bool:
    """Whether a connector has written to a topic within a minute and a half."""
    path = f"/connectors/{name}/topics"
    return wait_until(lambda: topic in worker.request("GET", path)[1][name]["topics"], 90)


@pytest.fixture
def view(workers: list[MillraceWorker], show: Callable[..., View]) -> View:
    return show(workers[0].url)


@pytest.fixture
def name(workers: list[MillraceWorker]) -> Iterator[str]:
    chosen = f"kind_{secrets.token_hex(3)}"
    yield chosen
    workers[0].request("DELETE", f"/connectors/{chosen}")


def test_a_file_is_read(view: View, workers: list[MillraceWorker], name: str, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    page = view.open()
    make(page, "filestream", name, {"topic": name, "file": str(tmp_path / "lines.txt")})
    assert wrote(workers[0], name, name)
    view.check()


def test_a_log_becomes_rows(view: View, workers: list[MillraceWorker], name: str, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("GET /a\n")
    page = view.open()
    make(page, "logs", name, {"topic.prefix": name, "file": str(tmp_path / "app.log"), "rules": json.dumps(RULES)})
    assert wrote(workers[0], name, f"{name}.requests")
    view.check()


@pytest.mark.slow
def test_a_table_of_scylla_is_captured(
    view: View,
    name: str,
    scylla: Emulation,
    scylla_keyspace: Callable[..., str],
) -> None:
    table = f"{scylla_keyspace()}.t"
    with ThreadPoolExecutor(1) as pool:
        pool.submit(
            scylla.create_table, f"CREATE TABLE {table} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
        ).result()
    page = view.open()
    make(
        page,
        "scylla",
        name,
        {
            "topic.prefix": name,
            "scylla.cluster.ip.addresses": scylla.address,
            "scylla.table.names": table,
            "scylla.confidence.window.size": "1000",
        },
    )
    view.check()
    page = view.open(f"#/connectors/{name}/snapshots")
    expect(page.get_by_text("Neither asked for nor begun")).to_be_visible()
    # Without a name: all tables.
    page.get_by_role("button", name="Start a snapshot").click()
    expect(page.locator(".tasks > li").filter(has_text="completed")).to_be_visible(timeout=120_000)
    expect(page.locator(".progress-list")).to_contain_text(table)
    view.check()


def test_a_table_of_cassandra_is_captured(
    view: View,
    name: str,
    cassandra: HasCassandra,
    cassandra_keyspace: Callable[[], str],
) -> None:
    keyspace = cassandra_keyspace()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(
            execute_cql, cassandra.address, f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v int) WITH cdc = true"
        ).result()
    page = view.open()
    page.get_by_role("link", name="New connector").click()
    # The list of connectors has a search box too, and is still there for a moment.
    expect(page.get_by_role("heading", name="New connector")).to_be_visible()
    page.get_by_role("searchbox").fill("cassandra")
    page.locator(".plugin").first.click()
    page.get_by_label("All ").check()
    for option, value in {
        "name": name,
        "topic.prefix": name,
        "cassandra.hosts": cassandra.address,
        "cdc.raw.directories": str(cassandra.cdc_raw),
        "commit.log.delete": "false",
    }.items():
        field = page.locator(f"[id='o-{option}']")
        if field.evaluate("each => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.get_by_role("button", name="Choose from the source's tables …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(f"{keyspace}.t").check()
    dialog.get_by_role("button", name="Take these").click()
    page.get_by_role("button", name="Check and create").click()
    dialog.get_by_role("button", name="Create").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
    view.check()
