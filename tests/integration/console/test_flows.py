"""The page of flows: SQL with completion, plan, preview by a real Spark application, lineage, start."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from playwright.sync_api import expect

from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from tests.integration.control._logs import read_topic
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Closed, View

LONG = "flow-of-the-nightly-import-of-customer-master-data-from-the-legacy-warehouse-in-frankfurt"
#: Milliseconds in which a first preview answers: it starts Spark.
SPARK_MS = 180_000


@pytest.fixture(scope="module")
def cluster(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MillraceWorker]:
    """A worker with a topic of orders, and a flow that is stopped."""
    folder: Path = tmp_path_factory.mktemp("flows")
    (folder / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_HOME", str(folder / "home"))
        worker = MillraceWorker(
            folder / "worker",
            bootstrap,
            group=f"flows-{secrets.token_hex(4)}",
            processes=1,
            properties={"validate.timeout.ms": "150000", "request.timeout.ms": "200000"},
        )
        producer = Producer({"bootstrap.servers": bootstrap})
        for number, region in enumerate(("eu", "us", "eu"), 1):
            row = {"id": number, "amount": number * 10, "region": region}
            producer.produce("flows.orders", json.dumps(row).encode(), str(number).encode())
        assert producer.flush(30) == 0
        try:
            worker.start()
            body = {"name": LONG, "config": config(LONG), "initial_state": "STOPPED"}
            status, answer = worker.request("POST", "/connectors", body, timeout=120)
            assert status == 201, answer
            yield worker
        finally:
            worker.kill()


def config(name: str) -> dict[str, str]:
    """A flow over the orders."""
    return {
        "connector.class": "spark_jobs.SparkJob",
        **dict(line.split("=", 1) for line in properties(name).splitlines()),
        "transform.steps": "paid,small",
        "transform.step.paid.type": "filter",
        "transform.step.paid.condition": "amount > 10",
        "transform.step.small.type": "sql",
        "transform.step.small.sql": "SELECT id, upper(region) AS region FROM orders",
    }


def properties(name: str) -> str:
    """Source and sink of a flow, as the page takes them."""
    return "\n".join(
        (
            "source.topics=flows.orders",
            "source.format=plain",
            "source.key.encoding=bytes",
            "source.key.columns=id",
            "sink.type=kafka",
            f"sink.kafka.topic={name}-out",
            "sink.kafka.content=rows",
            "spark.master=local[2]",
            "spark.driver.memory=512m",
            f"spark.driver.extraJavaOptions={' '.join(FAST_START)}",
            "spark.application=console-flows",
        )
    )


@pytest.fixture
def view(cluster: MillraceWorker, show: Callable[..., View]) -> View:
    return show(cluster.url)


def test_flows_are_listed(view: View) -> None:
    page = view.open("#/flows")
    expect(page.get_by_role("link", name=LONG)).to_be_visible()
    expect(page.locator(".badge")).to_have_text("stopped")
    view.check()


def test_flows_are_shown_as_they_change(view: View, cluster: MillraceWorker) -> None:
    name = f"changed-{secrets.token_hex(3)}"
    page = view.open("#/flows")
    expect(page.get_by_role("link", name=LONG)).to_be_visible()
    body = {"name": name, "config": config(name), "initial_state": "STOPPED"}
    assert cluster.request("POST", "/connectors", body, timeout=120)[0] == 201
    expect(page.locator("li", has_text=name).locator(".badge")).to_have_text("stopped")
    page.get_by_role("link", name=name).click()
    source = page.get_by_label("Source and sink")
    expect(source).not_to_have_value("")
    source.evaluate("""(area) => {
      area.value = "source.topics=typed";
      area.dispatchEvent(new Event("input", { bubbles: true }));
      history.back();
    }""")
    page.get_by_role("button", name="Stay").click()
    expect(source).to_have_value("source.topics=typed")
    page.go_back()
    page.get_by_role("button", name="Leave").click()
    cluster.request("DELETE", f"/connectors/{name}")
    expect(page.get_by_role("link", name=name)).to_have_count(0)
    view.check()


def test_a_plan_says_what_is_wrong_and_what_the_flow_would_do(view: View) -> None:
    page = view.open("#/new-flow")
    expect(page.get_by_text("Not planned yet")).to_be_visible()
    view.check()
    page.get_by_label("Name", exact=True).fill("planned")
    area = page.get_by_label("Source and sink")
    area.fill("no property")
    expect(page.get_by_text("Line 1 is no property")).to_be_visible()
    expect(page.get_by_role("button", name="Plan", exact=True).first).to_be_disabled()
    view.check()
    area.fill("source.topics=flows.orders\nsource.format=plain")
    page.get_by_role("button", name="Plan", exact=True).first.click()
    expect(page.get_by_text("It can't work yet")).to_be_visible()
    view.check()
    area.fill(properties("planned"))
    page.get_by_label("Add a step").select_option("filter")
    page.get_by_label("condition of step 1").fill("amount >")
    page.get_by_role("button", name="Plan", exact=True).first.click()
    expect(page.get_by_text("transform.step.filter.condition", exact=True)).to_be_visible()
    page.get_by_label("condition of step 1").fill("amount > 10")
    page.get_by_role("button", name="Plan", exact=True).first.click()
    expect(page.get_by_text("It can work")).to_be_visible()
    view.check()


@pytest.mark.slow
def test_a_sql_flow_is_written_previewed_and_started(view: View, cluster: MillraceWorker, bootstrap: str) -> None:
    name = f"sql-{secrets.token_hex(3)}"
    page = view.open("#/flows")
    page.get_by_role("link", name="New flow").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Source and sink").fill(properties(name))
    page.get_by_label("Add a step").select_option("sql")
    sql = page.get_by_role("textbox", name="sql of step 1")
    sql.click()
    page.keyboard.type("SELECT * FROM ord")
    # The editor takes no Enter for the first moment after it has opened the list.
    page.get_by_role("option", name="orders").click()
    expect(sql).to_contain_text("SELECT * FROM orders")
    view.check()
    page.get_by_role("button", name="Preview", exact=True).first.click()
    expect(page.get_by_text("The first preview starts Spark")).to_be_visible()
    expect(page.get_by_text("Before the first step")).to_be_visible(timeout=SPARK_MS)
    region = page.get_by_role("region", name="Rows of").first
    expect(region.get_by_role("row")).to_have_count(4)
    view.check()

    # The columns are known now: the editor proposes them.
    sql.click()
    page.keyboard.press("Control+A")
    page.keyboard.type("SELECT id, upper(reg")
    page.get_by_role("option", name="region").click()
    page.keyboard.type(") AS region FROM orders WHERE amount > 10")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Preview", exact=True).first.click()
    expect(page.get_by_text("3 in, 2 out")).to_be_visible(timeout=SPARK_MS)
    expect(page.get_by_role("cell", name="EU", exact=True)).to_be_visible()
    page.get_by_role("button", name="Start …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("The REST call").click()
    expect(dialog.locator("pre")).to_contain_text("curl -X POST")
    view.check()
    dialog.get_by_role("button", name="Start").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running", timeout=SPARK_MS)

    def rows() -> list[str]:
        with ThreadPoolExecutor(1) as pool:
            return sorted(value["region"] for _, value in pool.submit(read_topic, bootstrap, f"{name}-out").result())

    assert wait_until(lambda: rows() == ["EU", "US"], 120), rows()
    cluster.request("DELETE", f"/connectors/{name}")


def test_rows_of_your_own_go_through_the_steps(view: View) -> None:
    page = view.open(f"#/flows/{LONG}")
    page.get_by_text("Rows of your own").click()
    area = page.get_by_role("textbox", name="Rows of your own")
    area.fill("{")
    page.get_by_role("button", name="Preview", exact=True).first.click()
    expect(page.get_by_text("Row 1 is not JSON")).to_be_visible()
    view.check()
    area.fill(
        '{"table": "flows.orders", "row": {"id": 7, "amount": 70, "region": "de"}}\n'
        '{"table": "flows.orders", "row": {"id": 8, "amount": 7, "region": "fr"}}'
    )
    page.get_by_role("button", name="Preview", exact=True).first.click()
    expect(page.get_by_role("cell", name="DE", exact=True)).to_be_visible(timeout=SPARK_MS)
    expect(page.get_by_text("1 left out")).to_be_visible()
    page.get_by_text("1 left out").click()
    expect(page.get_by_text("the condition amount > 10 is false")).to_be_visible()
    view.check()


def test_an_edit_of_a_flow_is_shown_before_it_is_made(view: View, cluster: MillraceWorker) -> None:
    page = view.open(f"#/flows/{LONG}")
    condition = page.get_by_label("condition of step 1")
    expect(condition).to_have_value("amount > 10")
    condition.fill("amount > 20")
    page.get_by_role("button", name="Plan", exact=True).first.click()
    expect(page.get_by_text("Effect of the edit")).to_be_visible()
    view.check()
    page.get_by_role("button", name="Change …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("tbody tr")).to_have_count(1)
    expect(dialog.locator(".old")).to_have_text("amount > 10")
    view.check()
    dialog.get_by_role("button", name="Change").click()
    expect(page.get_by_text("A stopped connector has none.")).to_be_visible()
    path = f"/connectors/{LONG}/config"
    assert cluster.request("GET", path)[1]["transform.step.paid.condition"] == "amount > 20"
    cluster.request("PATCH", path, {"transform.step.paid.condition": "amount > 10"})


def test_lineage_before_the_columns_are_known(view: View) -> None:
    page = view.open(f"#/flows/{LONG}")
    page.get_by_role("button", name="Lineage").click()
    expect(page.get_by_text("Columns are not known yet")).to_be_visible()
    view.check()


def test_a_flow_that_is_not_there(view: View) -> None:
    page = view.open("#/flows/nothing")
    expect(page.get_by_text("There is no flow of this name")).to_be_visible()
    view.check()


def test_a_reader_looks_at_flows_and_can_not_change_them(closed: Closed, show: Callable[..., View]) -> None:
    closed.create("sales-flow", config("sales-flow"))
    view = show(closed.worker.url)
    page = view.open("#/flows/sales-flow")
    page.get_by_label("User").fill("reader")
    page.get_by_label("Password").fill("redaer")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("Planning and changing it needs the role admin")).to_be_visible()
    expect(page.get_by_label("condition of step 1")).not_to_be_editable()
    view.check()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_pages_of_flows_fit_every_width_and_scheme(
    cluster: MillraceWorker, show: Callable[..., View], scheme: str, width: int
) -> None:
    view = show(cluster.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    for fragment, sign in (("#/flows", ".cards"), (f"#/flows/{LONG}", ".step .sql"), ("#/new-flow", "textarea")):
        page = view.open(fragment)
        page.reload()
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        view.check()


def test_tab_leaves_the_sql_editor(view: View) -> None:
    page = view.open(f"#/flows/{LONG}")
    sql = page.get_by_role("textbox", name="sql of step 2")
    sql.focus()
    expect(sql).to_be_focused()
    page.keyboard.press("Tab")
    expect(sql).not_to_be_focused()
