"""A pipeline from a real MariaDB, made and watched in the browser: form, snapshot, verification."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from compose.local.databases.server_pair import execute_sql
from compose.local.process.service import wait_until

from .conftest import USERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.worker import MillraceWorker
    from tests.conftest import HasMariaDb

    from .conftest import Closed, View


@dataclass
class Shop:
    """A database with two tables of three rows each, and a connector that captures them.

    Attributes:
        worker: a worker of the cluster.
        server: the MariaDB.
        database: the database's name.
    """

    worker: MillraceWorker
    server: HasMariaDb
    database: str

    def config(self, **more: str) -> dict[str, Any]:
        """A connector's configuration."""
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "topic.prefix": self.database,
            "database.include.list": self.database,
            "key.converter": "JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
            **more,
        }

    def sql(self, *statements: str) -> None:
        """Run statements in the database."""
        execute_sql(self.server, f"CREATE DATABASE IF NOT EXISTS {self.database}", f"USE {self.database}", *statements)


@pytest.fixture(scope="module")
def shop(workers: list[MillraceWorker], mariadb: HasMariaDb) -> Iterator[Shop]:
    """That database; its connector runs, and has pulled both tables."""
    database = f"shop_{secrets.token_hex(4)}"
    world = Shop(workers[0], mariadb, database)
    world.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, amount INT)",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40))",
        "INSERT INTO orders VALUES (1, 10), (2, 20), (3, 30)",
        "INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bob'), (3, 'Eve')",
    )
    world.worker.create(database, world.config(**{"database.server.id": "7301"}))
    yield world
    world.worker.request("DELETE", f"/connectors/{database}")
    world.sql(f"DROP DATABASE {database}")


@pytest.fixture
def view(shop: Shop, show: Callable[..., View]) -> View:
    return show(shop.worker.url)


# Create and edit.


def test_a_capture_is_made_from_the_tables_that_the_database_has(view: View, shop: Shop) -> None:
    name = f"made_{secrets.token_hex(3)}"
    page = view.open("#/new")
    page.get_by_role("searchbox").fill("mariadb")
    page.locator(".plugin").first.click()
    page.get_by_label("name needed", exact=True).fill(name)
    for option, value in {
        "database.hostname": "127.0.0.1",
        "database.user": shop.server.user,
        "database.password": "wrong",
        "topic.prefix": name,
    }.items():
        page.locator(f"[id='o-{option}']").fill(value)
    page.get_by_label("All ").check()
    page.locator("[id='o-database.port']").fill(str(shop.server.port))
    page.locator("[id='o-database.server.id']").fill("7302")
    page.get_by_role("button", name="Test connection").click()
    expect(page.get_by_text("It does not work yet")).to_be_visible()
    expect(page.locator("[id='o-database.password']")).to_have_attribute("aria-invalid", "true")
    view.check()
    page.get_by_role("button", name="Choose from the source's tables …").click()
    expect(page.get_by_text("The tables can't be read")).to_be_visible()
    page.locator("[id='o-database.password']").fill(shop.server.password)
    page.get_by_role("button", name="Choose from the source's tables …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("searchbox").fill(f"{shop.database}.")
    expect(dialog.get_by_role("listitem")).to_have_count(2)
    dialog.get_by_label(f"{shop.database}.orders").check()
    view.check()
    dialog.get_by_role("button", name="Take these").click()
    tables = page.locator("[id='o-table.include.list']")
    expect(tables).to_have_value(rf"{shop.database}\.orders")
    page.get_by_role("button", name="Test connection").click()
    expect(page.get_by_text("It works")).to_be_visible()
    view.check()
    page.get_by_role("button", name="Check and create").click()
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
    topic = f"{name}.{shop.database}.orders"
    page.get_by_role("navigation", name="Parts").get_by_role("link", name="Topics").click()
    topics = f"/connectors/{name}/topics"
    assert wait_until(lambda: topic in shop.worker.request("GET", topics)[1][name]["topics"], 60)
    page.reload()
    expect(page.get_by_text(topic)).to_be_visible()
    shop.worker.request("DELETE", f"/connectors/{name}")


def test_tables_of_a_connector_are_chosen_without_its_password(view: View, shop: Shop) -> None:
    page = view.open(f"#/connectors/{shop.database}/edit")
    page.get_by_label("All ").check()
    page.get_by_role("button", name="Choose from the source's tables …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(f"{shop.database}.customers").check()
    dialog.get_by_role("button", name="Take these").click()
    expect(page.locator("[id='o-table.include.list']")).to_be_focused()
    expect(page.locator("[id='o-table.include.list']")).to_have_value(rf"{shop.database}\.customers")


def test_references_to_config_providers_are_offered(closed: Closed, show: Callable[..., View]) -> None:
    closed.write(USERS)
    view = show(closed.worker.url)
    page = view.open("#/new")
    page.get_by_label("User").fill("chief")
    page.get_by_label("Password").fill("feihc")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("searchbox").fill("mariadb")
    page.locator(".plugin").first.click()
    page.get_by_role("button", name="${file:/path:key} for database.password").click()
    password = page.locator("[id='o-database.password']")
    expect(password).to_be_focused()
    expect(password).to_have_value("${file:/path:key}")
    expect(password).to_have_attribute("type", "text")
    view.check()


# Snapshots.


@pytest.mark.slow
def test_a_snapshot_is_asked_for_and_watched(view: View, shop: Shop) -> None:
    page = view.open(f"#/connectors/{shop.database}/snapshots")
    view.check()
    page.get_by_label("Tables to read again").fill(f"{shop.database}.orders")
    page.keyboard.press("Enter")

    def states() -> list[str]:
        rows = shop.worker.request("GET", f"/connectors/{shop.database}/snapshots")[1]
        return [row["state"] for row in rows if row["origin"] == "rest"]

    assert wait_until(lambda: states() == ["completed"], 90), states()
    expect(page.locator(".tasks > li").filter(has_text="completed").first).to_be_visible()
    view.check()


# Verify.


def test_a_snapshot_is_asked_for_once(view: View, shop: Shop) -> None:
    def read_states() -> list[str]:
        """The states of the snapshots that somebody asked for."""
        snapshots = shop.worker.request("GET", f"/connectors/{shop.database}/snapshots")[1]
        return [snapshot["state"] for snapshot in snapshots if snapshot["origin"] == "rest"]

    before = len(read_states())
    page = view.open(f"#/connectors/{shop.database}/snapshots")
    page.get_by_role("button", name="Start a snapshot").dblclick()
    assert wait_until(lambda: len(read_states()) > before and set(read_states()) == {"completed"}, 90)
    assert len(read_states()) == before + 1


def test_equal_tables_are_shown_as_equal(view: View, shop: Shop) -> None:
    page = view.open("#/verify")
    page.get_by_role("link", name=f"Compare {shop.database}").click()
    expect(page.get_by_text("Not compared yet")).to_be_visible()
    view.check()
    page.get_by_role("button", name="Compare now").click()
    expect(page.get_by_text("All tables are equal")).to_be_visible(timeout=120_000)
    expect(page.get_by_role("region", name=f"{shop.database}.orders")).to_contain_text("3 rows in the source")
    view.check()


def test_rows_that_differ_are_shown_by_their_keys(view: View, shop: Shop) -> None:
    # The log does not have the row, so that the connector can't have it.
    shop.sql("SET SESSION sql_log_bin = 0", "INSERT INTO orders VALUES (4, 40)")
    page = view.open(f"#/verify/{shop.database}")
    page.get_by_role("button", name="Compare now").click()
    expect(page.get_by_text("1 of 2 tables differs")).to_be_visible(timeout=120_000)
    table = page.get_by_role("region", name=f"{shop.database}.orders")
    expect(table.locator(".badge")).to_have_text("different")
    expect(table.get_by_text("1 missing")).to_be_visible()
    missing = table.get_by_role("region", name="Rows that are missing")
    expect(missing.get_by_role("rowheader")).to_have_text('{"id":4}')
    expect(missing.get_by_role("row", name="amount")).to_contain_text("40")
    expect(missing.get_by_role("row", name="amount")).to_contain_text("no row")
    view.check()
    shop.sql("UPDATE orders SET amount = 41 WHERE id = 4")
    page.get_by_role("button", name="Compare these again").click()
    expect(page.get_by_text("All tables are equal")).to_be_visible(timeout=120_000)
    expect(page.get_by_role("region", name=f"{shop.database}.customers")).to_have_count(0)


def test_both_sides_of_a_row_that_differs_are_shown(view: View, shop: Shop) -> None:
    shop.sql(
        "SET SESSION sql_log_bin = 0", "UPDATE orders SET amount = 11 WHERE id = 1", "DELETE FROM orders WHERE id = 3"
    )
    page = view.open(f"#/verify/{shop.database}")
    page.get_by_role("button", name="Compare now").click()
    table = page.get_by_role("region", name=f"{shop.database}.orders")
    different = table.get_by_role("region", name="Rows that are different")
    expect(different.get_by_role("rowheader")).to_have_text('{"id":1}', timeout=120_000)
    expect(different.get_by_role("row", name="amount")).to_contain_text("11")
    expect(different.get_by_role("row", name="amount")).to_contain_text("10")
    extra = table.get_by_role("region", name="Rows that are extra")
    expect(extra.get_by_role("rowheader")).to_have_text('{"id":3}')
    expect(extra.get_by_role("row", name="amount")).to_contain_text("30")
    view.check()
    shop.sql(
        "SET SESSION sql_log_bin = 0", "UPDATE orders SET amount = 10 WHERE id = 1", "INSERT INTO orders VALUES (3, 30)"
    )


def test_rows_that_differ_are_sent_again_from_the_page(view: View, shop: Shop) -> None:
    shop.sql("SET SESSION sql_log_bin = 0", "INSERT INTO orders VALUES (5, 50), (6, 60)")
    page = view.open(f"#/verify/{shop.database}")
    page.get_by_role("button", name="Compare now").click()
    expect(page.get_by_text("2 missing")).to_be_visible(timeout=120_000)
    page.get_by_role("button", name="Send rows again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(f"{shop.database}.orders (2 rows)")).to_be_visible()
    expect(dialog.get_by_text(f"/connectors/{shop.database}/verify/repair")).to_be_visible()
    view.check()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Send rows again").click()
    dialog.get_by_role("button", name="Send again").click()
    expect(dialog.get_by_text("sends them")).to_be_visible()
    dialog.get_by_role("button", name="Done").click()
    path = f"/connectors/{shop.database}/verify"

    def equal() -> bool:
        """Whether the last comparison found nothing; starts another one if it did."""
        run = shop.worker.request("GET", path)[1]
        if run["state"] != "running" and not (run["result"] or {}).get("equal"):
            shop.worker.request("POST", path)
        return run["state"] == "completed" and bool(run["result"]["equal"])

    assert wait_until(equal, 90), shop.worker.request("GET", path)[1]
    page.reload()
    expect(page.get_by_text("All tables are equal")).to_be_visible(timeout=120_000)
    expect(page.get_by_role("button", name="Send rows again")).to_have_count(0)


def test_topics_of_a_flow_are_compared_with_its_target(view: View, shop: Shop) -> None:
    name = f"{shop.database}-flow"
    shop.sql(
        "CREATE TABLE copies (id INT PRIMARY KEY, amount INT, ums_id_ BIGINT, ums_active_ SMALLINT)",
        "INSERT INTO copies VALUES (1, 10, 1, 1), (2, 21, 1, 1)",
    )
    config = {
        "connector.class": "spark",
        "source.topics": f"{shop.database}.{shop.database}.orders",
        "source.format": "debezium",
        "sink.type": "jdbc",
        "sink.jdbc.url": f"jdbc:mariadb://127.0.0.1:{shop.server.port}/{shop.database}",
        "sink.jdbc.user": shop.server.user,
        "sink.jdbc.password": shop.server.password,
        "sink.jdbc.table": "copies",
    }
    body = {"name": name, "config": config, "initial_state": "STOPPED"}
    status, answer = shop.worker.request("POST", "/connectors", body, timeout=120)
    assert status == 201, answer
    page = view.open("#/verify")
    page.get_by_role("link", name=f"Compare {name}").click()
    expect(page.get_by_text("compared with the tables of the target")).to_be_visible()
    page.get_by_role("button", name="Compare now").click()
    different = page.get_by_role("region", name="Rows that are different")
    expect(different.get_by_role("columnheader", name="Target")).to_be_visible(timeout=120_000)
    row = different.get_by_role("row", name="amount")
    expect(row.get_by_role("cell").nth(1)).to_have_text("20")
    expect(row.get_by_role("cell").nth(2)).to_have_text("21")
    expect(page.get_by_text("rows that are not in the target")).to_be_visible()
    path = f"/connectors/{shop.database}/snapshots"
    before = len(shop.worker.request("GET", path)[1])
    page.get_by_role("button", name="Send rows again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(f"{config['source.topics']} (the whole table)")).to_be_visible()
    dialog.get_by_role("button", name="Send again").click()
    expect(dialog.get_by_text(f"of {shop.database} sends them")).to_be_visible()
    view.check()
    assert len(shop.worker.request("GET", path)[1]) == before + 1
    dialog.get_by_role("button", name="Watch the snapshot").click()
    expect(page).to_have_url(re.compile(f"connectors/{shop.database}/snapshots"))
    shop.worker.request("DELETE", f"/connectors/{name}")
    shop.sql("DROP TABLE copies")


def test_a_verification_that_can_not_work_says_why(view: View, shop: Shop) -> None:
    page = view.open(f"#/verify/{shop.database}")
    page.get_by_role("textbox").fill("(")
    page.get_by_role("button", name="Compare now").click()
    expect(page.get_by_text("is no regular expression")).to_be_visible(timeout=120_000)
    view.check()
    page.get_by_role("textbox").fill("no_such_table")
    page.get_by_role("button", name="Compare now").click()
    expect(page.get_by_text("It could not be compared").or_(page.get_by_text("No table fits"))).to_be_visible(
        timeout=120_000
    )
    view.check()


def test_the_tables_of_a_connector_are_listed(view: View, shop: Shop) -> None:
    page = view.open(f"#/connectors/{shop.database}/tables")
    expect(page.get_by_role("rowheader", name=f"{shop.database}.customers")).to_be_visible()
    view.check()
    # One that is new comes of itself, also without a change.
    shop.sql("CREATE TABLE latecomers (id INT PRIMARY KEY)")
    try:
        expect(page.get_by_role("rowheader", name=f"{shop.database}.latecomers")).to_be_visible(timeout=120_000)
        view.check()
    finally:
        shop.sql("DROP TABLE latecomers")


def test_a_reader_may_not_verify(closed: Closed, show: Callable[..., View]) -> None:
    closed.write(USERS)
    view = show(closed.worker.url)
    page = view.open("#/verify/stock")
    page.get_by_label("User").fill("reader")
    page.get_by_label("Password").fill("redaer")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("The result can't be read")).to_be_visible()
    view.check()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_pages_of_verification_fit_every_width_and_scheme(
    shop: Shop, show: Callable[..., View], scheme: str, width: int
) -> None:
    view = show(shop.worker.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    for fragment, sign in (("#/verify", ".cards"), (f"#/verify/{shop.database}", "form")):
        page = view.open(fragment)
        page.reload()
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        view.check()
