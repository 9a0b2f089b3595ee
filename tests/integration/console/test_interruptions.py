"""Events that come in between: other people's changes, Back, a session that ends, a worker that goes, slow answers."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compose.local.process.service import wait_until

from .test_access import log_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page, Route

    from compose.local.worker import MillraceWorker

    from .conftest import Closed, View


@pytest.fixture
def view(workers: list[MillraceWorker], show: Callable[..., View]) -> View:
    return show(workers[0].url)


@pytest.fixture
def name(workers: list[MillraceWorker]) -> Iterator[str]:
    """A connector that is stopped."""
    unique = f"between-{secrets.token_hex(3)}"
    create(workers[0], unique)
    yield unique
    workers[0].request("DELETE", f"/connectors/{unique}")


def create(worker: MillraceWorker, name: str) -> None:
    config = {"connector.class": "datagen", "topic": f"topic-of-{name}", "rate": "1"}
    body = {"name": name, "config": config, "initial_state": "STOPPED"}
    assert worker.request("POST", "/connectors", body)[0] == 201


def write_records(worker: MillraceWorker, topic: str, count: int) -> None:
    """Write this many records with a connector that is named as its topic."""
    worker.create(topic, {"connector.class": "datagen", "topic": topic, "records": count})

    def are_there() -> bool:
        status, page = worker.request("GET", f"/console/topics/{topic}?limit={count}")
        return status == 200 and len(page["records"]) == count

    assert wait_until(are_there, 60)


class Gate:
    """Requests of a page that wait until they are let through."""

    def __init__(self, page: Page, pattern: str, method: str) -> None:
        self.waiting: list[Route] = []
        self._method = method
        page.route(pattern, self._keep)

    def _keep(self, route: Route) -> None:
        if route.request.method == self._method:
            self.waiting.append(route)
        else:
            route.continue_()

    def open(self) -> None:
        for route in self.waiting:
            route.continue_()


# Other people's changes.


def test_a_dialog_does_not_come_back_with_a_connector_of_the_same_name(
    view: View, workers: list[MillraceWorker], name: str
) -> None:
    page = view.open(f"#/connectors/{name}")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    workers[1].request("DELETE", f"/connectors/{name}")
    expect(page.get_by_text("There is no connector of this name")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    create(workers[1], name)
    expect(page.get_by_text("A stopped connector has none.")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    view.check()


def test_a_configuration_that_another_client_changes_is_shown(
    view: View, workers: list[MillraceWorker], name: str
) -> None:
    page = view.open(f"#/connectors/{name}/config")
    expect(page.locator("dl.config")).to_contain_text(f"topic-of-{name}")
    assert workers[1].request("PATCH", f"/connectors/{name}/config", {"topic": "another-topic"})[0] == 200
    expect(page.locator("dl.config")).to_contain_text("another-topic")


def test_an_offset_that_is_edited_stays_when_the_connector_is_resumed(
    view: View, workers: list[MillraceWorker], tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\n")
    name = f"offset-{secrets.token_hex(3)}"
    workers[0].create(name, {"connector.class": "FileStreamSource", "topic": name, "file": str(lines)})
    assert wait_until(lambda: bool(workers[0].request("GET", f"/connectors/{name}/offsets")[1]["offsets"]), 60)
    workers[0].request("PUT", f"/connectors/{name}/stop")
    page = view.open(f"#/connectors/{name}/offsets")
    page.get_by_role("listitem").get_by_role("button", name="Edit").click()
    area = page.get_by_role("dialog").get_by_label("Offset")
    area.fill(json.dumps({"position": 4}))
    workers[1].request("PUT", f"/connectors/{name}/resume")
    expect(page.locator(".title .badge")).to_have_text("running")
    expect(area).to_have_value(json.dumps({"position": 4}))
    workers[0].request("DELETE", f"/connectors/{name}")


# Names.


@pytest.mark.parametrize("name", ["constructor", "__proto__"])
def test_a_connector_may_be_named_as_what_every_object_has(
    view: View, workers: list[MillraceWorker], name: str
) -> None:
    create(workers[0], name)
    try:
        page = view.open("#/overview")
        expect(page.get_by_role("region", name="Pipeline").get_by_text(name, exact=True)).to_be_visible()
        view.check()
        page = view.open(f"#/connectors/{name}/topics")
        expect(page.get_by_text("No topics yet")).to_be_visible()
        view.check()
    finally:
        workers[0].request("DELETE", f"/connectors/{name}")


# Unsaved changes.


def test_back_asks_before_changes_are_lost(view: View, name: str) -> None:
    page = view.open(f"#/connectors/{name}/config")
    page.get_by_role("link", name="Edit").click()
    topic = page.get_by_label("topic needed", exact=True)
    topic.fill("typed")
    edit = page.url
    page.go_back()
    expect(page.get_by_role("dialog")).to_contain_text("Leave without saving?")
    assert page.url == edit
    page.get_by_role("button", name="Stay").click()
    expect(topic).to_have_value("typed")
    view.check()
    page.go_back()
    page.get_by_role("button", name="Leave").click()
    expect(page.locator("dl.config")).to_be_visible()
    assert page.url.endswith(f"#/connectors/{name}/config")


def test_rules_ask_before_changes_are_lost(view: View) -> None:
    page = view.open("#/rules")
    page.get_by_role("link", name="New rule set").click()
    table = page.get_by_label("Table", exact=True)
    table.fill("typed")
    page.get_by_label("Pages").get_by_role("link", name="Log rules").click()
    page.get_by_role("button", name="Stay").click()
    expect(table).to_have_value("typed")
    page.go_back()
    page.get_by_role("button", name="Leave").click()
    expect(table).to_have_count(0)


def test_what_is_typed_stays_when_the_session_ends(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open("#/connectors/stock/edit")
    log_in(page, "chief")
    topic = page.get_by_label("topic needed", exact=True)
    topic.fill("typed")
    view.page.context.clear_cookies()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    view.check()
    log_in(page, "chief")
    expect(topic).to_have_value("typed")
    page.get_by_role("button", name="Check and change").click()
    expect(page.get_by_role("dialog")).to_contain_text("Change the configuration?")
    view.check()


def test_a_filter_of_records_is_kept_while_another_is_chosen(view: View, workers: list[MillraceWorker]) -> None:
    topic = f"typed-{secrets.token_hex(3)}"
    write_records(workers[0], topic, 3)
    page = view.open(f"#/topics/{topic}")
    expect(page.locator("li.record")).to_have_count(3)
    key = page.get_by_label("Key contains")
    key.fill("something")
    page.get_by_label("Shown").select_option("JSON")
    expect(page).to_have_url(f"{view.url}#/topics/{topic}?key=something&form=json")
    expect(key).to_have_value("something")
    page.get_by_label("Condition in CEL").fill("(")
    key.press("Enter")
    expect(page.get_by_text("The records can't be read")).to_be_visible()
    expect(page.locator("li.record")).to_have_count(0)
    page.get_by_label("Condition in CEL").fill("")
    key.fill("")
    key.press("Enter")
    expect(page.locator("li.record")).to_have_count(3)
    expect(key).to_be_focused()
    workers[0].request("DELETE", f"/connectors/{topic}")


# Dialogs.


def test_text_that_is_selected_beyond_a_dialog_does_not_close_it(view: View, name: str) -> None:
    page = view.open(f"#/connectors/{name}/edit")
    page.get_by_label("topic needed", exact=True).fill("typed")
    page.get_by_role("button", name="Check and change").click()
    dialog = page.get_by_role("dialog")
    box = dialog.get_by_text("The tasks start again with it.").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(5, 5, steps=5)
    page.mouse.up()
    expect(dialog).to_be_visible()
    page.mouse.click(5, 5)
    expect(dialog).to_have_count(0)


def test_a_refusal_is_seen_although_escape_was_pressed(view: View, workers: list[MillraceWorker], name: str) -> None:
    page = view.open(f"#/connectors?q={name}")
    page.get_by_label(f"Choose {name}").check()
    page.get_by_role("button", name="Delete").click()
    gate = Gate(page, f"**/connectors/{name}", "DELETE")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("progressbar")).to_be_visible()
    for _ in range(3):
        page.keyboard.press("Escape")
    workers[1].request("DELETE", f"/connectors/{name}")
    gate.open()
    expect(page.get_by_text("1 of 1 could not be done")).to_be_visible()


# Slow answers.


def test_an_answer_does_not_lead_away_from_where_somebody_has_gone(view: View, name: str) -> None:
    view.open("#/topics")
    page = view.open(f"#/connectors/{name}")
    page.get_by_role("button", name="Delete").click()
    gate = Gate(page, f"**/connectors/{name}", "DELETE")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    with page.expect_response(f"**/connectors/{name}"):
        gate.open()
    page.wait_for_function("new Promise((resolve) => setTimeout(() => resolve(true)))")
    assert page.url.endswith("#/topics")


def test_a_check_is_not_lost_when_another_field_is_left(view: View, name: str) -> None:
    page = view.open(f"#/connectors/{name}/edit")
    topic = page.get_by_label("topic needed", exact=True)
    topic.fill("typed")
    gate = Gate(page, "**/check", "PUT")
    topic.press("Enter")
    page.get_by_role("searchbox").focus()
    wait_until(lambda: len(gate.waiting) == 2, 10)
    gate.open()
    expect(page.get_by_role("dialog")).to_contain_text("Change the configuration?")


# A worker that goes.


def test_a_page_that_could_not_be_read_continues_when_the_worker_is_back(
    workers: list[MillraceWorker], show: Callable[..., View]
) -> None:
    worker = workers[1]
    view = show(worker.url)
    page = view.open("#/connectors")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    worker.kill()
    page.evaluate("location.hash = '#/new'")
    expect(page.get_by_text("The worker does not answer")).to_be_visible()
    page.evaluate("location.hash = '#/audit'")
    expect(page.get_by_text("The page can't be loaded")).to_be_visible()
    page.evaluate("location.hash = '#/new'")
    expect(page.get_by_text("The worker does not answer")).to_be_visible()
    worker.start()
    expect(page.locator(".plugin").first).to_be_visible()
    page.evaluate("location.hash = '#/audit'")
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()


# By keyboard.


def test_a_button_keeps_the_focus_while_it_is_busy(view: View, workers: list[MillraceWorker]) -> None:
    topic = f"focus-{secrets.token_hex(3)}"
    write_records(workers[0], topic, 120)
    page = view.open(f"#/topics/{topic}")
    expect(page.locator("li.record")).to_have_count(50)
    older = page.get_by_role("button", name="Older records")
    older.focus()
    gate = Gate(page, "**/console/topics/**", "GET")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(older).to_have_attribute("aria-busy", "true")
    gate.open()
    expect(page.locator("li.record")).to_have_count(100)
    expect(older).to_be_focused()
    assert len(gate.waiting) == 1
    workers[0].request("DELETE", f"/connectors/{topic}")
