"""A thousand connectors: all are there, and what is looked for is found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compose.local.worker import MillraceWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import View

COUNT = 1000


@pytest.fixture(scope="module")
def crowded(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MillraceWorker]:
    """A worker with a thousand connectors, all stopped."""
    worker = MillraceWorker(tmp_path_factory.mktemp("crowded"), bootstrap, group="console-crowded", processes=1)

    def create(number: int) -> None:
        config = {"connector.class": "datagen", "topic": f"topic-{number:04}"}
        body = {"name": f"crowd-{number:04}", "config": config, "initial_state": "STOPPED"}
        status, answer = worker.request("POST", "/connectors", body, timeout=60)
        assert status == 201, answer

    try:
        worker.start()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, range(COUNT)))
        yield worker
    finally:
        worker.kill()


def test_all_are_in_the_table_and_one_is_found(crowded: MillraceWorker, show: Callable[..., View]) -> None:
    view = show(crowded.url)
    page = view.open()
    expect(page.get_by_text("1,000 connectors")).to_be_visible()
    # Only what is seen is in the page.
    assert page.locator("tbody tr").count() < 60
    page.get_by_role("searchbox").press_sequentially("crowd-0777")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_text("1 of 1,000 connectors")).to_be_visible()
    page.get_by_role("searchbox").fill("crowd-09")
    expect(page.get_by_text("100 of 1,000 connectors")).to_be_visible()
    view.check()


def test_the_last_is_reached_by_scrolling(crowded: MillraceWorker, show: Callable[..., View]) -> None:
    view = show(crowded.url)
    page = view.open("#/connectors?sort=name")
    expect(page.get_by_role("link", name="crowd-0000")).to_be_visible()
    page.get_by_role("region", name="Connectors").evaluate("box => box.scrollTo(0, box.scrollHeight)")
    expect(page.get_by_role("link", name="crowd-0999")).to_be_visible()


def test_the_overview_shows_a_part_and_finds_the_rest(crowded: MillraceWorker, show: Callable[..., View]) -> None:
    view = show(crowded.url)
    page = view.open("#/overview")
    expect(page.get_by_text("40 of 1,000 connectors")).to_be_visible()
    graph = page.get_by_role("region", name="Pipeline")
    expect(graph.locator(".node.connector")).to_have_count(40)
    view.check()
    page.get_by_role("searchbox").fill("crowd-0777")
    expect(graph.locator(".node.connector")).to_have_count(1)
    expect(graph.get_by_role("link", name="crowd-0777")).to_be_visible()
