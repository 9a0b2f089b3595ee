"""The start page: what fails and why, the pipeline as a graph, workers."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compose.local.process.service import wait_until

from .test_access import log_in
from .test_pages import BROKEN, LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.worker import MillraceWorker

    from .conftest import Closed, View

FLOW = {
    "connector.class": "spark_jobs.SparkJob",
    "source.topics": "overview-orders",
    "source.format": "debezium",
    "sink.type": "http",
    "sink.http.url": "http://warehouse:8080/rows?key=topsecret",
}


@pytest.fixture(scope="module")
def cluster(workers: list[MillraceWorker]) -> Iterator[MillraceWorker]:
    """A source that writes, one with a long name, a flow behind the first, and one that fails."""
    worker = workers[0]
    names = ["overview-orders", f"overview-{LONG}", "overview-copy", "overview-broken"]
    for name in names[:2]:
        worker.create(name, {"connector.class": "datagen", "topic": name, "rate": "20", "tasks.max": 2})
    body = {"name": "overview-copy", "config": FLOW, "initial_state": "STOPPED"}
    status, answer = worker.request("POST", "/connectors", body)
    assert status == 201, answer
    worker.create("overview-broken", {**BROKEN, "topic": "overview-broken"})
    assert wait_until(lambda: worker.states("overview-broken")[1] == ["FAILED"], 60)
    yield worker
    for name in names:
        worker.request("DELETE", f"/connectors/{name}")


@pytest.fixture
def view(cluster: MillraceWorker, show: Callable[..., View]) -> View:
    return show(cluster.url)


def test_it_is_the_start_page(view: View) -> None:
    page = view.open("")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_role("link", name="Overview", exact=True)).to_have_attribute("aria-current", "page")
    view.check()


def test_what_failed_is_first_with_its_cause_and_what_to_do(view: View, cluster: MillraceWorker) -> None:
    page = view.open("#/overview")
    trouble = page.locator(".trouble").filter(has_text="overview-broken")
    expect(trouble).to_contain_text("Unknown field: nowhere")
    expect(trouble).to_contain_text("What to do: Correct the configuration")
    trouble.get_by_role("button", name="Restart what failed").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("The REST call").click()
    expect(dialog.locator("pre")).to_contain_text("onlyFailed=true")
    view.check()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    patch = {"transforms.pick.field": "id"}
    assert cluster.request("PATCH", "/connectors/overview-broken/config", patch)[0] == 200
    expect(trouble).to_have_count(0)
    assert (
        cluster.request("PATCH", "/connectors/overview-broken/config", {"transforms.pick.field": "nowhere"})[0] == 200
    )
    expect(trouble).to_contain_text("Unknown field: nowhere")


def test_the_pipeline_goes_from_source_to_target(view: View) -> None:
    page = view.open("#/overview?q=overview-orders")
    graph = page.get_by_role("region", name="Pipeline")
    labels = graph.locator(".node-label")
    expect(labels).to_have_count(5)
    assert set(labels.all_text_contents()) == {
        "datagen",
        "overview-orders",
        "overview-copy",
        "http://warehouse:8080/rows",
    }
    expect(graph.locator(".mark.out").first).to_have_text(re.compile(r"[1-9][\d.]*/s"))
    # From left to right, and no node over another.
    boxes = [box for node in graph.locator(".node").all() if (box := node.bounding_box()) is not None]
    lefts = sorted(box["x"] for box in boxes)
    assert all(right - left >= 164 for left, right in itertools.pairwise(lefts))
    view.check()
    graph.get_by_role("link", name="overview-copy").click()
    expect(page.get_by_role("heading", name="overview-copy")).to_be_visible()


def test_a_secret_of_an_address_is_not_shown(view: View) -> None:
    with view.page.expect_response(lambda answer: answer.url.endswith("/console/pipeline")) as pipeline:
        page = view.open("#/overview?q=8080")
    expect(page.get_by_role("region", name="Pipeline").locator(".node-label")).to_have_count(3)
    assert "http://warehouse:8080/rows" in pipeline.value.text()
    assert "topsecret" not in pipeline.value.text()


def test_the_filter_is_in_the_address_and_nothing_may_fit(view: View) -> None:
    page = view.open("#/overview")
    page.get_by_role("searchbox").fill("no such thing")
    expect(page.get_by_text("Nothing fits")).to_be_visible()
    assert page.url.endswith("#/overview?q=no+such+thing")
    view.check()
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_role("region", name="Pipeline")).to_be_visible()


def test_workers_and_their_leader_are_shown(view: View, workers: list[MillraceWorker]) -> None:
    page = view.open("#/overview")
    table = page.get_by_role("region", name="Workers")
    expect(table.locator("tbody tr")).to_have_count(2)
    for worker in workers:
        expect(table).to_contain_text(worker.url.removeprefix("http://"))
    expect(table.get_by_text("leader")).to_have_count(1)


def test_states_lead_to_the_table(view: View) -> None:
    page = view.open("#/overview")
    page.get_by_role("navigation", name="Connectors by state").get_by_role("link", name="Failed").click()
    expect(page.locator("tbody tr").first).to_contain_text("failed")
    assert "state=FAILED" in page.url


def test_the_graph_works_by_keyboard(view: View) -> None:
    page = view.open("#/overview?q=overview-orders")
    link = page.get_by_role("region", name="Pipeline").get_by_role("link", name="overview-orders").first
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="overview-orders")).to_be_visible()


def test_a_reader_sees_its_connectors_only_and_can_not_restart(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open("#/overview")
    log_in(page, "seller")
    graph = page.get_by_role("region", name="Pipeline")
    expect(graph.locator("a.connector").filter(has_text="sales-eu")).to_be_visible()
    expect(graph.locator("a.connector").filter(has_text="sales-us")).to_be_visible()
    expect(page.get_by_text("stock")).to_have_count(0)
    view.check()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_it_fits_every_width_and_scheme(
    cluster: MillraceWorker, show: Callable[..., View], scheme: str, width: int
) -> None:
    view = show(cluster.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = view.open("#/overview")
    expect(page.locator(".trouble").first).to_contain_text("What to do")
    expect(page.locator(".node").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    view.check()
