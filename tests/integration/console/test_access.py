"""Roles in the console, and what happens when a session ends or a worker goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from compose.local.worker import MillraceWorker

    from .conftest import Closed, View
from .prefix_proxy import prefixed


def log_in(page: Page, name: str) -> None:
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(name[::-1])
    page.keyboard.press("Enter")


def test_a_wrong_password_is_refused_and_the_right_one_opens(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    view.check()
    page.get_by_label("User").fill("chief")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("User or password is wrong.")).to_be_visible()
    view.check()
    log_in(page, "chief")
    expect(page.get_by_role("link", name="stock")).to_be_visible()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_role("link", name="stock")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_reader_is_offered_nothing_to_change(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open("#/connectors/stock")
    log_in(page, "reader")
    expect(page.get_by_role("heading", name="stock")).to_be_visible()
    expect(page.get_by_role("group", name="Actions").get_by_role("button")).to_have_count(0)
    page.get_by_role("link", name="Configuration").click()
    expect(page.get_by_role("button", name="Download")).to_be_visible()
    expect(page.get_by_role("link", name="Edit")).to_have_count(0)
    page.get_by_role("link", name="Connectors").first.click()
    expect(page.get_by_role("link", name="stock")).to_be_visible()
    expect(page.get_by_role("link", name="New connector")).to_have_count(0)
    view.check()


def test_roles_are_for_each_connector(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open()
    log_in(page, "seller")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Choose sales-us").check()
    expect(page.get_by_role("group", name="With those").get_by_role("button")).to_have_text(["Choose none"])
    page.get_by_label("Choose sales-eu").check()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("dialog")).to_contain_text("Resume sales-eu?")
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("row", name="sales-eu")).to_contain_text("running")


def test_a_session_that_ends_shows_the_form_and_goes_on_where_it_was(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open("#/connectors/stock/config")
    log_in(page, "reader")
    expect(page.get_by_role("button", name="Download")).to_be_visible()
    view.page.context.clear_cookies()
    page.get_by_label("Parts").get_by_role("link", name="Topics").click()
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    view.check()
    log_in(page, "reader")
    expect(page.get_by_text("No topics yet")).to_be_visible()


def test_the_console_works_under_a_prefix_of_a_proxy(closed: Closed, show: Callable[..., View]) -> None:
    with prefixed(closed.worker.url, "/cdc/millrace") as root:
        view = show(root)
        page = view.open("/#/connectors/stock")
        log_in(page, "chief")
        expect(page.get_by_text("A stopped connector has none.")).to_be_visible()
        page.get_by_text("The REST calls").click()
        expect(page.locator(".calls pre")).to_contain_text(f"{root}/connectors/stock/status")
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
        assert view.complaints == []
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        expect(page.get_by_text("A stopped connector has none.")).to_be_visible()


def test_a_worker_that_goes_is_noticed_and_its_return_too(
    workers: list[MillraceWorker], show: Callable[..., View]
) -> None:
    worker = workers[1]
    worker.create("watched", {"connector.class": "datagen", "topic": "console", "rate": "1"})
    view = show(worker.url)
    page = view.open()
    expect(page.get_by_role("link", name="watched")).to_be_visible()
    worker.kill()
    expect(page.get_by_text("The worker does not answer")).to_be_visible()
    expect(page.get_by_role("link", name="watched")).to_be_visible()
    worker.start()
    expect(page.get_by_text("The worker does not answer")).to_have_count(0)
