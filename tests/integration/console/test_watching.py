"""Audit and metrics: who changed what, and the charts of the last half hour."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from .test_access import log_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.worker import MillraceWorker

    from .conftest import Closed, View


def test_who_changed_what_and_who_was_refused(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open("#/connectors/sales-us")
    log_in(page, "chief")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.get_by_text("A stopped connector has none.")).to_be_visible()
    page.get_by_role("link", name="Audit").click()
    rows = page.get_by_role("region", name="Changes").locator("tbody tr")
    expect(rows.first).to_contain_text("stopped")
    expect(rows.first).to_contain_text("chief")
    expect(rows.first).to_contain_text("sales-us")
    expect(rows.first).to_contain_text("done")
    expect(rows.nth(1)).to_contain_text("resumed")
    view.check()
    page.get_by_role("searchbox").fill("sales-us resumed")
    expect(rows).to_have_count(1)
    assert page.url.endswith("#/audit?q=sales-us+resumed")
    page.get_by_role("searchbox").fill("nobody at all")
    expect(page.get_by_text("Nothing fits the filter")).to_be_visible()
    view.check()


def test_changes_at_every_worker_are_shown_once(workers: list[MillraceWorker], show: Callable[..., View]) -> None:
    names = [f"audited-{secrets.token_hex(3)}" for _ in workers]
    for worker, name in zip(workers, names, strict=True):
        worker.create(name, {"connector.class": "datagen", "topic": name, "records": 1})
    view = show(workers[0].url)
    page = view.open("#/audit")
    rows = page.get_by_role("region", name="Changes").locator("tbody tr")
    expect(rows.first).to_be_visible()
    for worker, name in zip(workers, names, strict=True):
        page.get_by_role("searchbox").fill(worker.url.removeprefix("http://"))
        expect(rows.first).to_contain_text(worker.url.removeprefix("http://"))
        assert worker.request("DELETE", f"/connectors/{name}")[0] == 204
        page.get_by_role("button", name="Look again").click()
        page.get_by_role("searchbox").fill(f"{name} deleted")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text(worker.url.removeprefix("http://"))


def test_a_reader_may_look_at_numbers_and_not_at_the_audit(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open("#/audit")
    log_in(page, "reader")
    expect(page.get_by_text("Not for your role")).to_be_visible()
    view.check()
    page.get_by_role("link", name="Metrics").click()
    expect(page.locator(".charts canvas").first).to_be_visible()


def test_who_reads_some_connectors_sees_no_numbers_of_all(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open("#/metrics")
    log_in(page, "seller")
    expect(page.get_by_text("Not for your role")).to_be_visible()
    view.check()


def test_charts_of_all_workers_go_on_by_themselves(workers: list[MillraceWorker], show: Callable[..., View]) -> None:
    name = f"charted-{secrets.token_hex(3)}"
    workers[0].create(name, {"connector.class": "datagen", "topic": name, "rate": "30"})
    view = show(workers[0].url)
    page = view.open("#/metrics")
    expect(page.locator(".charts canvas")).to_have_count(6)
    rate = page.locator("figure").filter(has_text="Records written per second").locator("figcaption strong")
    expect(rate).to_have_text(re.compile(r"[1-9][\d.]*/s"))
    expect(page.locator("figure").filter(has_text="Memory").locator(".legend li")).to_have_count(2)
    view.check()
    workers[0].request("DELETE", f"/connectors/{name}")


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_they_fit_every_width_and_scheme(
    workers: list[MillraceWorker], show: Callable[..., View], scheme: str, width: int
) -> None:
    workers[0].request("PUT", "/connectors/no-such-connector/pause")
    view = show(workers[0].url, color_scheme=scheme, viewport={"width": width, "height": 800})
    for fragment, sign in (("#/audit", "tbody tr"), ("#/metrics", "canvas")):
        page = view.open(fragment)
        page.reload()
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        view.check()
