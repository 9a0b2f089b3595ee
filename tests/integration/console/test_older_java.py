"""``millrace console --connect`` on Java workers of older versions: what their REST API lacks is not offered."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from .java import open_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import View
    from .java import Cluster

pytestmark = pytest.mark.slow

#: Parts of a connector's page, by the set of artifacts that has the version.
PARTS = {
    "connect-3": ["Tasks", "Offsets", "Topics", "Configuration"],
}
ACTIONS = {
    "connect-3": ["Pause", "Restart", "Stop", "Delete"],
}


@pytest.fixture(scope="module", params=PARTS)
def older(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Cluster]]:
    """The set of artifacts of a version, and a cluster of it."""
    with open_cluster(bootstrap, tmp_path_factory.mktemp(request.param), request.param) as cluster:
        yield request.param, cluster


@pytest.fixture
def view(older: tuple[str, Cluster], show: Callable[..., View]) -> View:
    return show(older[1].url)


def test_what_the_version_lacks_is_not_offered(view: View, older: tuple[str, Cluster]) -> None:
    runtime, _ = older
    page = view.open("#/connectors/orders")
    expect(page.locator(".task")).to_have_count(2)
    tabs = page.get_by_role("navigation", name="Parts").get_by_role("link").all_inner_texts()
    assert [tab.split("\n")[0].rstrip("0123456789 ") for tab in tabs] == PARTS[runtime]
    actions = page.get_by_role("group", name="Actions").get_by_role("button").all_inner_texts()
    assert actions == ACTIONS[runtime]
    for part in tabs:
        page.get_by_role("navigation", name="Parts").get_by_role("link", name=part.split("\n")[0]).click()
        expect(page.get_by_role("alert")).to_have_count(0)
        view.check()
    page = view.open()
    page.get_by_label("Choose orders").check()
    chosen = page.get_by_role("group", name="With those")
    expect(chosen.get_by_role("button", name="Stop")).to_have_count(ACTIONS[runtime].count("Stop"))
    view.check()


def test_a_connector_is_made_changed_restarted_and_deleted(
    view: View, older: tuple[str, Cluster], tmp_path: Path
) -> None:
    _, cluster = older
    name = f"made-{secrets.token_hex(3)}"
    (tmp_path / "lines.txt").write_text("one\n")
    page = view.open("#/new")
    page.get_by_role("button", name="FileStreamSource").click()
    page.get_by_label("name needed", exact=True).fill(name)
    page.get_by_label("topic needed", exact=True).fill("java-console")
    page.get_by_label("All ").check()
    page.get_by_label("file", exact=True).fill(str(tmp_path / "lines.txt"))
    page.get_by_role("button", name="Check and create").click()
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    task = page.locator(".task").filter(has_text="Task 0")
    expect(task).to_contain_text("running")
    page.get_by_role("link", name="Configuration").click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("topic needed", exact=True).fill("java-console-2")
    page.get_by_role("button", name="Check and change").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(task).to_contain_text("running")
    assert cluster.request("GET", f"/connectors/{name}/config")[1]["topic"] == "java-console-2"
    for action in ("Restart", "Delete"):
        page.get_by_role("group", name="Actions").get_by_role("button", name=action).click()
        view.check()
        page.get_by_role("dialog").get_by_role("button", name=action).click()
        expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", name="Connectors")).to_be_visible()
    assert cluster.request("GET", f"/connectors/{name}")[0] == 404


def test_offsets_that_can_not_be_changed_are_shown(view: View) -> None:
    page = view.open("#/connectors/orders/offsets")
    expect(page.get_by_text("they can be changed since Kafka 3.6")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="filename")).to_be_visible()
    expect(page.get_by_text("Offsets can be edited while")).to_have_count(0)
    view.check()


def test_a_failed_task_and_a_failed_connector_are_restarted(view: View) -> None:
    page = view.open("#/connectors?state=FAILED")
    page.get_by_role("link", name="broken").click()
    task = page.locator(".task").filter(has_text="Task 0")
    expect(task.locator(".cause").last).to_contain_text("DataException")
    # A task on its own, and with its connector, by however many calls that takes.
    with page.expect_response(lambda answer: answer.url.endswith("/broken/tasks/0/restart")) as answered:
        task.get_by_role("button", name="Restart").click()
    assert answered.value.status == 204
    page.get_by_role("group", name="Actions").get_by_role("button", name="Restart").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(task).to_contain_text("failed")
    view.check()
