"""The work of an operator with the console: find, look, change; each page by a real browser on real workers."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compose.local.process.service import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.worker import MillraceWorker

    from .conftest import View

LONG = "nightly-import-of-customer-master-data-from-the-legacy-warehouse-in-frankfurt-am-main-with-a-long-name"
#: A task that fails at its first record, until its transform is another.
BROKEN = {
    "connector.class": "datagen",
    "topic": "console-broken",
    "rate": "20",
    "transforms": "pick",
    "transforms.pick.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
    "transforms.pick.field": "nowhere",
}


@pytest.fixture(scope="module")
def cluster(workers: list[MillraceWorker]) -> MillraceWorker:
    """A worker of a cluster with connectors in every state."""
    worker = workers[0]
    for name in ("orders", LONG):
        worker.create(name, {"connector.class": "datagen", "topic": "console", "rate": "20", "tasks.max": 2})
    worker.create("broken", BROKEN)
    for state in ("PAUSED", "STOPPED"):
        body = {
            "name": f"{state.lower()}/one %",
            "config": {"connector.class": "datagen", "topic": "console"},
            "initial_state": state,
        }
        assert worker.request("POST", "/connectors", body)[0] == 201
    assert wait_until(lambda: worker.states("broken")[1] == ["FAILED"], 60)
    return worker


@pytest.fixture
def view(cluster: MillraceWorker, show: Callable[..., View]) -> View:
    return show(cluster.url)


# The table.


def test_failed_ones_are_first_and_say_why(view: View) -> None:
    page = view.open()
    first = page.locator("tbody tr").first
    expect(first).to_contain_text("broken")
    expect(first.locator(".badge")).to_have_text("failed")
    expect(first).to_contain_text("Unknown field: nowhere")
    expect(page.get_by_role("row", name="orders")).to_contain_text("running")
    view.check()


def test_rates_of_all_workers_are_shown(view: View) -> None:
    page = view.open()
    for name in ("orders", LONG):
        cell = page.get_by_role("row", name=f"Choose {name}").locator(".c-rate")
        expect(cell).to_have_text(re.compile(r"\d[\d.]*/s"))


def test_the_filter_is_in_the_address(view: View) -> None:
    page = view.open()
    expect(page.get_by_role("searchbox")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("nightly")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.url.endswith("#/connectors?q=nightly")
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("searchbox")).to_have_value("nightly")
    page.get_by_role("searchbox").fill("no such thing")
    expect(page.get_by_text("Nothing fits the filter")).to_be_visible()
    view.check()


def test_states_are_filters(view: View) -> None:
    page = view.open("#/connectors?state=STOPPED")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Paused").click()
    expect(page.locator("tbody tr")).to_contain_text("paused/one %")


def test_columns_are_sorted_by_their_heads(view: View) -> None:
    page = view.open()
    head = page.get_by_role("columnheader", name="Name")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    names = page.locator("tbody .c-name a")
    expect(names.first).to_have_text("broken")
    head.get_by_role("button").click()
    expect(names.last).to_have_text("broken")


def test_many_are_paused_and_resumed_at_once(view: View, cluster: MillraceWorker) -> None:
    names = [f"bulk-{number}" for number in range(4)]
    for name in names:
        cluster.create(name, {"connector.class": "datagen", "topic": "console", "rate": "1"})
    page = view.open("#/connectors?q=bulk-")
    expect(page.locator("tbody .badge.running")).to_have_count(4)
    for action, state in (("Pause", "paused"), ("Resume", "running")):
        page.get_by_label("Choose all").check()
        page.get_by_role("group", name="With those").get_by_role("button", name=action).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("4 connectors")
        dialog.get_by_text("The REST calls").click()
        expect(dialog.locator("pre")).to_contain_text(f"/connectors/bulk-3/{action.lower()}")
        view.check()
        dialog.get_by_role("button", name=action).click()
        expect(page.locator(f"tbody .badge.{state}")).to_have_count(4)
    page.get_by_label("Choose all").check()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Nothing fits the filter")).to_be_visible()
    assert cluster.states("bulk-0")[0] == "MISSING"


def test_what_another_client_does_is_seen_at_once(view: View, cluster: MillraceWorker) -> None:
    page = view.open("#/connectors?q=elsewhere")
    expect(page.get_by_text("Nothing fits the filter")).to_be_visible()
    cluster.create("made-elsewhere", {"connector.class": "datagen", "topic": "console", "rate": "1"})
    expect(page.get_by_role("link", name="made-elsewhere")).to_be_visible()
    cluster.request("DELETE", "/connectors/made-elsewhere")
    expect(page.get_by_text("Nothing fits the filter")).to_be_visible()


# One connector.


def test_a_connector_shows_its_tasks_and_why_they_are_there(view: View) -> None:
    page = view.open("#/connectors/orders")
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
    expect(page.locator(".why").first).to_contain_text("on 127.0.0.1")
    expect(page.locator(".chart canvas")).to_be_visible()
    view.check()


def test_a_failing_task_is_found_and_made_right(view: View, cluster: MillraceWorker) -> None:
    cluster.create("repaired", {**BROKEN, "topic": "console-repaired"})
    page = view.open("#/connectors?q=repaired")
    expect(page.locator("tbody .badge")).to_have_text("failed")
    page.get_by_role("link", name="repaired").click()
    task = page.locator(".task").filter(has_text="Task 0")
    expect(task).to_contain_text("Caused by: Skippable: Unknown field: nowhere")
    task.get_by_text("The whole trace").click()
    expect(task.locator("pre")).to_contain_text("Traceback (most recent call last)")
    view.check()
    page.get_by_role("link", name="Configuration").click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("transforms.pick.field").fill("id")
    page.get_by_role("button", name="Check and change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("tbody tr")).to_have_count(1)
    expect(dialog.locator(".old")).to_have_text("nowhere")
    dialog.get_by_text("The REST call").click()
    expect(dialog.locator("pre")).to_contain_text("curl -X PATCH")
    view.check()
    dialog.get_by_role("button", name="Change").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
    assert cluster.request("GET", "/connectors/repaired/config")[1]["transforms.pick.field"] == "id"
    cluster.request("DELETE", "/connectors/repaired")


def test_names_with_every_sign_have_addresses(view: View) -> None:
    page = view.open()
    page.get_by_role("link", name="stopped/one %").click()
    expect(page.get_by_role("heading", name="stopped/one %")).to_be_visible()
    page.get_by_label("Parts").get_by_role("link", name="Topics").click()
    expect(page.get_by_text("No topics yet")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("A stopped connector has none.")).to_be_visible()
    view.check()


def test_an_offset_is_edited_and_the_edit_undone(view: View, cluster: MillraceWorker, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\nthree\n")
    name = f"file-{secrets.token_hex(3)}"
    cluster.create(name, {"connector.class": "FileStreamSource", "topic": name, "file": str(lines)})
    path = f"/connectors/{name}/offsets"
    assert wait_until(lambda: bool(cluster.request("GET", path)[1]["offsets"]), 60)
    page = view.open(f"#/connectors/{name}/offsets")
    expect(page.get_by_text("Offsets can be edited while")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.get_by_role("listitem").get_by_role("button", name="Edit").click()
    before = cluster.request("GET", path)[1]["offsets"][0]["offset"]
    area = page.get_by_role("dialog").get_by_label("Offset")
    area.fill("{")
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    area.fill(json.dumps({"position": 4}))
    expect(page.locator(".diff .new")).to_have_text("4")
    view.check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The offset is changed")).to_be_visible()
    assert cluster.request("GET", path)[1]["offsets"][0]["offset"] == {"position": 4}
    view.check()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("The offset is changed")).to_have_count(0)
    assert cluster.request("GET", path)[1]["offsets"][0]["offset"] == before
    cluster.request("DELETE", f"/connectors/{name}")


@pytest.mark.parametrize("tab", ["snapshots", "offsets", "topics", "config"])
def test_every_part_of_a_connector_is_accessible(view: View, tab: str) -> None:
    page = view.open(f"#/connectors/{LONG}/{tab}")
    expect(page.locator(".tab .calls").last).to_be_visible()
    view.check()


def test_an_address_that_changes_while_the_console_starts_is_followed(view: View) -> None:
    view.page.add_init_script("""new MutationObserver((_, observer) => {
      if (!document.querySelector("main")) return;
      observer.disconnect();
      history.replaceState(null, "", "#/new");
    }).observe(document, { childList: true, subtree: true });""")
    page = view.open()
    expect(page.locator("h1")).to_have_text("New connector")
    view.check()


def test_a_connector_that_is_not_there(view: View) -> None:
    page = view.open("#/connectors/nobody")
    expect(page.get_by_text("There is no connector of this name")).to_be_visible()
    view.check()


# Create.


def test_a_connector_is_made_with_the_form(view: View, cluster: MillraceWorker) -> None:
    name = f"made-{secrets.token_hex(3)}"
    page = view.open()
    page.get_by_role("link", name="New connector").click()
    view.check()
    page.get_by_role("button", name="Datagen").first.click()
    page.get_by_label("name needed", exact=True).fill(name)
    topic = page.get_by_label("topic needed", exact=True)
    topic.focus()
    page.keyboard.press("Tab")
    expect(page.get_by_text('Missing required configuration "topic"')).to_be_visible()
    view.check()
    topic.fill("console-made")
    page.keyboard.press("Tab")
    expect(page.get_by_text('Missing required configuration "topic"')).to_have_count(0)
    page.get_by_label("All ").check()
    page.get_by_label("rate", exact=True).fill("many")
    page.get_by_role("button", name="Check and create").click()
    expect(page.get_by_label("rate", exact=True)).to_be_focused()
    page.get_by_label("rate", exact=True).fill("5")
    page.get_by_role("button", name="Check and create").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("The REST call").click()
    expect(dialog.locator("pre")).to_contain_text("curl -X POST")
    view.check()
    dialog.get_by_role("button", name="Create").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
    assert cluster.request("GET", f"/connectors/{name}/config")[1]["rate"] == "5"
    cluster.request("DELETE", f"/connectors/{name}")


def test_a_configuration_is_uploaded(view: View, tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text(
        json.dumps(
            {"name": "uploaded", "config": {"connector.class": "datagen", "topic": "up", "rate": 9007199254740993}}
        )
    )
    page = view.open("#/new")
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_label("name needed", exact=True)).to_have_value("uploaded")
    expect(page.get_by_label("topic needed", exact=True)).to_have_value("up")
    expect(page.get_by_label("rate", exact=True)).to_have_value("9007199254740993")
    (tmp_path / "bad.json").write_text("{")
    page.get_by_role("link", name="Connectors").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Stay").click()
    expect(page.get_by_label("topic needed", exact=True)).to_have_value("up")
    page.get_by_role("link", name="Connectors").first.click()
    view.check()
    page.get_by_role("dialog").get_by_role("button", name="Leave").click()
    page.get_by_role("link", name="New connector").click()
    page.locator("input[type=file]").set_input_files(tmp_path / "bad.json")
    expect(page.get_by_text("The file is not JSON")).to_be_visible()
    view.check()


def test_a_secret_never_reaches_the_browser(view: View, cluster: MillraceWorker) -> None:
    secret = f"s3cret-{secrets.token_hex(4)}"
    body = {
        "name": "with-secret",
        "config": {
            "connector.class": "datagen",
            "topic": "console",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "producer.override.ssl.key.password": secret,
        },
        "initial_state": "STOPPED",
    }
    assert cluster.request("POST", "/connectors", body)[0] == 201
    seen: list[str] = []
    view.page.on("response", lambda response: seen.append(response.text()) if "/events" not in response.url else None)
    page = view.open("#/connectors/with-secret/config")
    expect(page.get_by_text("producer.override.ssl.key.password")).to_be_visible()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("topic needed", exact=True).fill("console-2")
    page.get_by_role("button", name="Check and change").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("A stopped connector has none.")).to_be_visible()
    config = cluster.request("GET", "/connectors/with-secret/config")[1]
    assert (config["topic"], config["producer.override.ssl.key.password"]) == ("console-2", secret)
    assert seen
    assert not [text for text in seen if secret in text]
    cluster.request("DELETE", "/connectors/with-secret")


# How it looks.


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_pages_fit_every_width_and_scheme(
    cluster: MillraceWorker, show: Callable[..., View], scheme: str, width: int
) -> None:
    view = show(cluster.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    for fragment, sign in (
        ("#/connectors", "tbody tr"),
        ("#/connectors/broken", ".trace"),
        (f"#/connectors/{LONG}/config", "dl.config"),
        ("#/connectors/orders/edit", ".option"),
        ("#/new", ".plugin"),
    ):
        page = view.open(fragment)
        page.reload()
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        view.check()


def test_the_table_works_by_keyboard(view: View) -> None:
    page = view.open("#/connectors?q=orders")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("searchbox").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "orders":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
