"""``millrace console --connect`` on a real Java Kafka Connect worker, in a real browser."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.eventually import eventually

from .java import BROKEN, SECRET, open_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import View
    from .java import Cluster

WRAP = "org.apache.kafka.connect.transforms.HoistField$Value"
#: What stands for a number that is not known.
UNKNOWN = "\u2013"
LATE = "The connectors can't be read"


@pytest.fixture(scope="module")
def cluster(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(bootstrap, tmp_path_factory.mktemp("java")) as java:
        yield java


@pytest.fixture
def view(cluster: Cluster, show: Callable[..., View]) -> View:
    return show(cluster.url)


def confirm(view: View, action: str) -> None:
    """Press a button and confirm it."""
    view.page.get_by_role("button", name=action, exact=True).click()
    view.page.get_by_role("dialog").get_by_role("button", name=action, exact=True).click()


# What is shown.


def test_the_start_page_has_the_connectors_and_what_a_java_cluster_can_not_say_is_a_dash(
    view: View, cluster: Cluster
) -> None:
    page = view.open("")
    first = page.locator("tbody tr").first
    expect(first).to_contain_text("broken")
    expect(first.locator(".badge")).to_have_text("failed")
    expect(first).to_contain_text("Only Struct objects supported")
    row = page.get_by_role("row", name="orders")
    expect(row).to_contain_text("running")
    expect(row.locator(".c-rate")).to_have_text(UNKNOWN)
    expect(row.locator(".c-lag")).to_have_text(UNKNOWN)
    expect(page.get_by_role("banner")).to_contain_text(cluster.worker.url)
    view.check()


def test_pages_that_only_millrace_has_are_not_offered(view: View) -> None:
    page = view.open()
    expect(page.locator("tbody tr").first).to_be_visible()
    assert page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts() == ["Connectors"]
    for fragment in (
        "#/overview",
        "#/flows",
        "#/topics/a",
        "#/rules",
        "#/verify",
        "#/metrics",
        "#/audit",
        "#/new-flow",
    ):
        page = view.open(fragment)
        expect(page.get_by_text("There is no such page for a Java cluster")).to_be_visible()
    view.check()
    page = view.open("#/connectors/orders")
    expect(page.locator(".task")).to_have_count(2)
    tabs = page.get_by_role("navigation", name="Parts").get_by_role("link").all_inner_texts()
    assert [tab.split("\n")[0].rstrip("0123456789 ") for tab in tabs] == [
        "Tasks",
        "Offsets",
        "Topics",
        "Configuration",
    ]
    view.check()


def test_topics_that_a_connector_has_used_are_shown(view: View) -> None:
    page = view.open("#/connectors/orders/topics")
    expect(page.locator(".plain-list")).to_have_text("java-console")
    view.check()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_pages_fit_every_width_and_scheme(cluster: Cluster, show: Callable[..., View], scheme: str, width: int) -> None:
    view = show(cluster.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    for fragment, sign in (
        ("#/connectors", "tbody tr"),
        ("#/connectors/broken", ".trace"),
        ("#/connectors/orders/config", "dl.config"),
        ("#/connectors/orders/edit", ".option"),
        ("#/new", ".plugin"),
    ):
        page = view.open(fragment)
        page.reload()
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        view.check()


# What is done.


def test_a_failing_task_is_found_and_fixed(view: View, cluster: Cluster) -> None:
    name = f"fix-{secrets.token_hex(3)}"
    cluster.create(name, BROKEN)
    page = view.open("#/connectors?state=FAILED")
    page.get_by_role("link", name=name).click()
    task = page.locator(".task").filter(has_text="Task 0")
    expect(task).to_contain_text("failed")
    expect(task.locator(".cause").last).to_contain_text("DataException")
    page.get_by_text("The whole trace").click()
    view.check()
    page.get_by_role("link", name="Configuration").click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("transforms.pick.type", exact=True).fill(WRAP)
    page.get_by_role("button", name="Check and change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".diff .new")).to_have_text(WRAP)
    view.check()
    dialog.get_by_role("button", name="Change").click()
    expect(task).to_contain_text("running")
    config = cluster.request("GET", f"/connectors/{name}/config")[1]
    assert (config["transforms.pick.type"], config["transforms.pick.field"]) == (WRAP, "nowhere")
    confirm(view, "Delete")
    expect(page.get_by_role("heading", name="Connectors")).to_be_visible()
    expect(page.get_by_role("link", name=name)).to_have_count(0)
    assert cluster.request("GET", f"/connectors/{name}")[0] == 404


def test_a_failed_task_is_restarted(view: View) -> None:
    page = view.open("#/connectors/broken")
    task = page.locator(".task").filter(has_text="Task 0")
    with page.expect_response(re.compile("/tasks/0/restart")) as answered:
        task.get_by_role("button", name="Restart").click()
    assert answered.value.status == 204
    with page.expect_response(re.compile(r"broken/restart\?includeTasks=true")) as answered:
        page.get_by_role("group", name="Actions").get_by_role("button", name="Restart").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    assert answered.value.status == 202
    expect(task).to_contain_text("failed")
    view.check()


@pytest.mark.slow
def test_connectors_are_paused_and_resumed_and_stopped_at_once(view: View, cluster: Cluster) -> None:
    names = [f"bulk-{number}" for number in range(3)]
    for name in names:
        cluster.create(name)
    page = view.open("#/connectors?q=bulk-")
    expect(page.locator("tbody .badge.running")).to_have_count(3)
    for action, state in (("Pause", "paused"), ("Resume", "running"), ("Stop", "stopped"), ("Delete", None)):
        page.get_by_label("Choose all").check()
        page.get_by_role("group", name="With those").get_by_role("button", name=action).click()
        # Deleting is followed by rebalances, during which a Java worker refuses with 409.
        page.get_by_role("dialog").get_by_role("button", name=action).click()
        if state is not None:
            expect(page.locator(f"tbody .badge.{state}")).to_have_count(3)
    expect(page.get_by_text("Nothing fits the filter")).to_be_visible()
    assert not set(names) & set(cluster.request("GET", "/connectors")[1])
    view.check()


def test_an_offset_is_edited_and_the_edit_undone(view: View, cluster: Cluster) -> None:
    name = f"offset-{secrets.token_hex(3)}"
    cluster.create(name)
    before = {"position": 14}  # its end
    eventually(lambda: cluster.offset(name) == before, "the offset is saved")
    page = view.open(f"#/connectors/{name}/offsets")
    expect(page.get_by_text("Offsets can be edited while")).to_be_visible()
    confirm(view, "Stop")
    page.get_by_role("listitem").get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("Offset").fill(json.dumps({"position": 4}))
    expect(page.locator(".diff .new")).to_have_text("4")
    view.check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The offset is changed")).to_be_visible()
    assert cluster.offset(name) == {"position": 4}
    view.check()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("The offset is changed")).to_have_count(0)
    assert cluster.offset(name) == before
    cluster.request("DELETE", f"/connectors/{name}")


def test_a_connector_is_made_with_the_form(view: View, cluster: Cluster, tmp_path: Path) -> None:
    name = f"made-{secrets.token_hex(3)}"
    (tmp_path / "lines.txt").write_text("one\n")
    page = view.open()
    page.get_by_role("link", name="New connector").click()
    expect(page.locator(".plugin").first).to_be_visible()
    view.check()
    page.get_by_role("button", name="FileStreamSource").click()
    page.get_by_label("name needed", exact=True).fill(name)
    topic = page.get_by_label("topic needed", exact=True)
    topic.focus()
    page.keyboard.press("Tab")
    expect(page.get_by_text('Missing required configuration "topic"')).to_be_visible()
    view.check()
    topic.fill("java-console")
    page.get_by_label("All ").check()
    page.get_by_label("file", exact=True).fill(str(tmp_path / "lines.txt"))
    page.get_by_role("button", name="Check and create").click()
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
    cluster.request("DELETE", f"/connectors/{name}")


def test_a_secret_never_reaches_the_browser(view: View, cluster: Cluster) -> None:
    seen: list[str] = []
    view.page.on("response", lambda response: seen.append(response.text()) if "/events" not in response.url else None)
    page = view.open("#/connectors/orders/config")
    expect(page.get_by_text("db.password")).to_be_visible()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("topic needed", exact=True).fill("java-console-2")
    page.get_by_role("button", name="Check and change").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.locator(".task").filter(has_text="Task 0")).to_contain_text("running")
    config = cluster.request("GET", "/connectors/orders/config")[1]
    assert (config["topic"], config["db.password"]) == ("java-console-2", SECRET)
    assert seen
    assert not [text for text in seen if SECRET in text]


# A cluster that does not answer. The last of the module.


@pytest.mark.slow
def test_a_cluster_that_goes_is_noticed_and_its_return_too(view: View, cluster: Cluster) -> None:
    page = view.open()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    cluster.worker.kill()
    notice = page.get_by_role("status").filter(has_text=LATE)
    expect(notice).to_contain_text("does not answer")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    view.check()
    page.get_by_label("Choose orders").check()
    page.get_by_role("group", name="With those").get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("does not answer")
    page.get_by_role("button", name="Close").click()
    page.reload()
    expect(page.get_by_text(LATE)).to_be_visible()
    cluster.worker.start()
    expect(page.get_by_text(LATE)).to_have_count(0)
    expect(page.get_by_role("link", name="orders")).to_be_visible()
