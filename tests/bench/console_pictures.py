"""Pictures of the console's pages, in light and dark and of a phone's width, with a cluster that has something to show."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pymysql

from compose.local.kafka import KafkaCluster
from compose.local.mariadb import MariaDb
from compose.local.monitoring.browser import ARGUMENTS, find_chromium
from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Browser, Page

#: Name of a picture -> the page, and what is there when it has come.
PAGES: Final = {
    "overview": ("#/overview", ".mark.out:has-text('/s')"),
    "connectors": ("#/connectors", "tbody tr .badge.running"),
    "connector": ("#/connectors/customers", ".task"),
    "topics": ("#/topics", "tbody tr"),
    "topic": ("#/topics/shop.orders", ".record"),
    "metrics": ("#/metrics", ".charts canvas"),
    "audit": ("#/audit", "tbody tr"),
    "history": ("#/connectors/orders/history", ".history"),
    "form": ("#/connectors/orders/edit", ".option"),
    "new": ("#/new", ".plugin"),
    "offsets": ("#/connectors/inventory/offsets", ".offsets li"),
    "tables": ("#/connectors/stock/tables", "tbody tr"),
    "snapshots": ("#/connectors/stock/snapshots", ".card"),
    "flow": ("#/flows/orders-by-region", ".cm-content"),
    "rules": ("#/rules/web-access", ".matched"),
    "verify": ("#/verify/stock", ".differences"),
}
#: How a page is shown -> colours, width and height.
LOOKS: Final[dict[str, tuple[str, int, int]]] = {
    "light": ("light", 1280, 860),
    "dark": ("dark", 1280, 860),
    "phone": ("light", 390, 800),
}
_DATAGEN: Final = {"connector.class": "datagen", "rate": "40", "envelope": "debezium"}
_LINES: Final = """\
203.0.113.7 GET /cart 200 0.012
198.51.100.4 GET /items/417 200 0.031
203.0.113.7 POST /cart/items 201 0.054
192.0.2.61 GET /items/9001 404 0.008
worker 12 restarted
"""
_RULES: Final = {
    "tables": [
        {
            "name": "requests",
            "groups": [
                {
                    "name": "all",
                    "steps": [
                        {
                            "regexExtract": {
                                "pattern": r"^(?P<client>\S+) (?P<verb>[A-Z]+) (?P<path>\S+) (?P<status>\d+) (?P<seconds>\S+)$"
                            }
                        },
                        {
                            "saveAs": {
                                "columns": [
                                    {"name": "client"},
                                    {"name": "verb"},
                                    {"name": "path"},
                                    {"name": "status", "type": "int"},
                                    {"name": "seconds", "type": "double"},
                                ]
                            }
                        },
                    ],
                }
            ],
        }
    ]
}
_STOCK: Final = (
    "CREATE DATABASE stock",
    "USE stock",
    "CREATE TABLE stock.articles (id INT PRIMARY KEY, name VARCHAR(60), price DECIMAL(8,2), shelf VARCHAR(20))",
    "CREATE TABLE stock.suppliers (id INT PRIMARY KEY, name VARCHAR(60))",
    "INSERT INTO stock.articles SELECT seq, CONCAT('Article ', seq), seq * 1.25, CONCAT('A-', seq MOD 40) FROM seq_1_to_1200",
    "INSERT INTO stock.suppliers SELECT seq, CONCAT('Supplier ', seq) FROM seq_1_to_80",
)
#: What the topics never hear of, since the log does not have it.
_SILENT: Final = (
    "SET SESSION sql_log_bin = 0",
    "UPDATE stock.articles SET price = 99.90, shelf = 'B-7' WHERE id = 17",
    "UPDATE stock.articles SET name = 'Article 230, boxed' WHERE id = 230",
    "DELETE FROM stock.articles WHERE id = 812",
    "INSERT INTO stock.articles VALUES (1201, 'Article 1201', 4.50, 'C-1')",
)
_FLOW: Final = {"connector.class": "spark_jobs.SparkJob", "source.format": "debezium"}
_BROKEN: Final = {
    "transforms": "pick",
    "transforms.pick.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
    "transforms.pick.field": "customer_number",
}


def run_sql(server: MariaDb, statements: Sequence[str]) -> None:
    """Run statements. Blocks."""
    opened = pymysql.connect(
        host="127.0.0.1", port=int(server.port or 0), user=server.user, password=server.password, autocommit=True
    )
    with opened, opened.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def capture_stock(worker: MillraceWorker, server: MariaDb) -> None:
    """Capture a database, and compare its tables with their topics once some rows differ."""
    run_sql(server, _STOCK)
    worker.create(
        "stock",
        {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.server.id": "7401",
            "database.include.list": "stock",
            "topic.prefix": "warehouse",
            "decimal.handling.mode": "string",
        },
    )

    def compared() -> bool:
        """Whether all tables are compared, and the connector had sent them."""
        status, run = worker.request("GET", "/connectors/stock/verify")
        if status == 200 and run["state"] == "running":
            return False
        if status == 200 and run["state"] == "completed" and run["result"]["tables"][0]["extra"] == 1:
            return True
        worker.request("POST", "/connectors/stock/verify", {"tables": ""})
        return False

    def pulled() -> bool:
        return bool(worker.request("GET", "/connectors/stock/topics")[1]["stock"]["topics"])

    if not wait_until(pulled, 120, 0.5):
        raise RuntimeError("the tables for the pictures are not pulled")
    run_sql(server, _SILENT)
    if not wait_until(compared, 180, 1.0):
        raise RuntimeError(f"the tables are not compared: {worker.request('GET', '/connectors/stock/verify')}")


def furnish(worker: MillraceWorker) -> None:
    """Create connectors in several states and rules, and wait until they are there."""
    worker.request("PUT", "/rules/web-access", {"rules": _RULES, "comment": "requests of the shop"})
    worker.create("orders", {**_DATAGEN, "topic": "shop.orders", "tasks.max": 2})
    worker.create("customers", {**_DATAGEN, "topic": "shop.customers", "rate": "3"})
    worker.create("payments", {**_DATAGEN, **_BROKEN, "topic": "shop.payments"})
    worker.create(
        "nightly-import-of-customer-master-data-from-frankfurt", {**_DATAGEN, "topic": "imports", "rate": "1"}
    )
    for name, state, config in (
        ("inventory", "PAUSED", {**_DATAGEN, "topic": "shop.inventory"}),
        (
            "orders-to-warehouse",
            "STOPPED",
            {
                **_FLOW,
                "source.topics": "shop.orders,shop.customers",
                "sink.type": "jdbc",
                "sink.jdbc.url": "jdbc:postgresql://warehouse:5432/shop",
                "sink.jdbc.user": "shop",
            },
        ),
        (
            "orders-by-region",
            "STOPPED",
            {
                **_FLOW,
                "source.topics": "shop.orders",
                "sink.type": "kafka",
                "sink.kafka.topic": "orders.by-region",
                "sink.kafka.content": "rows",
                "transform.steps": "large,regions",
                "transform.step.large.type": "filter",
                "transform.step.large.condition": "amount > 10",
                "transform.step.regions.type": "sql",
                "transform.step.regions.sql": "SELECT id, upper(region) AS region, amount FROM orders",
            },
        ),
    ):
        body = {"name": name, "config": config, "initial_state": state}
        status, answer = worker.request("POST", "/connectors", body)
        if status != 201:
            raise RuntimeError(f"{name} could not be created: {answer}")

    for patch in ({"rate": "35"}, {"rate": "40", "tasks.max": "3"}):
        worker.request("PATCH", "/connectors/orders/config", patch)

    def ready() -> bool:
        return worker.states("payments")[1] == ["FAILED"] and set(worker.states("orders")[1]) == {"RUNNING"}

    if not wait_until(ready, 120, 0.5):
        raise RuntimeError("the connectors for the pictures do not get into their states")


def fill_lines(page: Page) -> None:
    """Enter lines that rules are tried on."""
    page.get_by_label("Lines", exact=True).fill(_LINES)


#: What a page needs before its picture.
_BEFORE: Final = {"rules": fill_lines}


def take(browser: Browser, url: str, folder: Path, names: Sequence[str]) -> None:
    """Write ``PAGE-LOOK.png`` for each page and look."""
    for look, (scheme, width, height) in LOOKS.items():
        context = browser.new_context(
            locale="en-US",
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": height},
        )
        page = context.new_page()
        for name in names:
            fragment, sign = PAGES[name]
            page.goto("about:blank")
            page.goto(f"{url}/console{fragment}")
            if name in _BEFORE:
                _BEFORE[name](page)
            page.wait_for_selector(sign, timeout=90_000)
            page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
            print(folder / f"{name}-{look}.png")
        context.close()


def main(argv: list[str]) -> int:
    """Take them; about four minutes."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(prog="millrace bench console_pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("pages", nargs="*", choices=[*PAGES, []], help="which pages; none: all")
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    engine = find_chromium(say)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-bench-")))
        kafka = stack.enter_context(KafkaCluster(folder / "kafka", port=None))
        worker = MillraceWorker(folder / "worker", kafka.bootstrap, group="console", processes=1)
        stack.callback(worker.stop)
        furnish(worker.start())
        server = stack.enter_context(MariaDb(folder / "mariadb", port=None, durable=False, say=say))
        capture_stock(worker, server)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=engine.program, args=list(ARGUMENTS), env={**os.environ, **engine.environment}
        )
        take(browser, worker.url, options.folder, options.pages or list(PAGES))
        browser.close()
    return 0
