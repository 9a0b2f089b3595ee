"""Pictures of the console's pages, in light and dark and of a phone's width, with a cluster that has something to show."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compose.local.browser import ARGUMENTS, chromium
from compose.local.console import say
from compose.local.kafka import KafkaCluster
from compose.local.service import wait_until
from compose.local.worker import MillraceWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Browser

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
}
#: How a page is shown -> colours, width and height.
LOOKS: Final[dict[str, tuple[str, int, int]]] = {
    "light": ("light", 1280, 860),
    "dark": ("dark", 1280, 860),
    "phone": ("light", 390, 800),
}
_DATAGEN: Final = {"connector.class": "datagen", "rate": "40", "envelope": "debezium"}
_FLOW: Final = {"connector.class": "spark_jobs.SparkJob", "source.format": "debezium"}
_BROKEN: Final = {
    "transforms": "pick",
    "transforms.pick.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
    "transforms.pick.field": "customer_number",
}


def furnish(worker: MillraceWorker) -> None:
    """Create connectors in several states, and wait until they are there."""
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
            {**_FLOW, "source.topics": "shop.orders", "sink.type": "kafka", "sink.kafka.topic": "orders.by-region"},
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
            page.wait_for_selector(sign, timeout=90_000)
            page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
            print(folder / f"{name}-{look}.png")
        context.close()


def main(argv: list[str]) -> int:
    """Take them; about two minutes."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(prog="millrace bench console_pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("pages", nargs="*", choices=[*PAGES, []], help="which pages; none: all")
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    engine = chromium(say)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-bench-")))
        kafka = stack.enter_context(KafkaCluster(folder / "kafka", port=None))
        worker = MillraceWorker(folder / "worker", kafka.bootstrap, group="console", processes=1)
        stack.callback(worker.stop)
        furnish(worker.start())
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=engine.program, args=list(ARGUMENTS), env={**os.environ, **engine.environment}
        )
        take(browser, worker.url, options.folder, options.pages or list(PAGES))
        browser.close()
    return 0
