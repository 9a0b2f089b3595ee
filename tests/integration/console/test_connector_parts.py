"""Parts of a connector's page: earlier configurations and the way back, dead letters, tables."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compose.local.process.service import wait_until

from .test_access import log_in
from .test_overview import FLOW
from .test_pages import BROKEN, LONG
from .test_topics import send

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.worker import MillraceWorker

    from .conftest import Closed, View


@pytest.fixture
def view(workers: list[MillraceWorker], show: Callable[..., View]) -> View:
    return show(workers[0].url)


def test_an_earlier_configuration_is_seen_and_brought_back(view: View, workers: list[MillraceWorker]) -> None:
    name = f"history-{secrets.token_hex(3)}"
    worker = workers[0]
    worker.create(name, {"connector.class": "datagen", "topic": name, "rate": "7"})
    for patch in ({"rate": "8"}, {"rate": "9", "tasks.max": "2"}):
        assert worker.request("PATCH", f"/connectors/{name}/config", patch)[0] == 200
    page = view.open(f"#/connectors/{name}/history")
    versions = page.locator(".history > li")
    expect(versions).to_have_count(3)
    expect(versions.first).to_contain_text("now")
    expect(versions.first.locator("tbody tr")).to_have_count(2)
    expect(versions.nth(1).locator(".old")).to_have_text("7")
    view.check()
    versions.nth(2).get_by_role("button", name="Go back to this").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".old")).to_have_text(["9", "2"])
    expect(dialog.locator(".new")).to_have_text(["7", "\u2013"])
    dialog.get_by_text("The REST call").click()
    expect(dialog.locator("pre")).to_contain_text("curl -X PATCH")
    view.check()
    dialog.get_by_role("button", name="Go back").click()
    expect(versions).to_have_count(4)
    config = worker.request("GET", f"/connectors/{name}/config")[1]
    assert (config["rate"], config.get("tasks.max")) == ("7", None)
    worker.request("DELETE", f"/connectors/{name}")


def test_a_secret_of_an_earlier_configuration_is_not_shown(view: View, workers: list[MillraceWorker]) -> None:
    name, secret = f"secret-{secrets.token_hex(3)}", f"s3cret-{secrets.token_hex(4)}"
    option = "producer.override.ssl.key.password"
    body = {
        "name": name,
        "config": {"connector.class": "datagen", "topic": name, option: secret},
        "initial_state": "STOPPED",
    }
    assert workers[0].request("POST", "/connectors", body)[0] == 201
    assert workers[0].request("PATCH", f"/connectors/{name}/config", {option: f"{secret}-2", "rate": "3"})[0] == 200
    bodies: list[str] = []
    view.page.on("response", lambda answer: bodies.append(answer.text()) if answer.url.endswith("/history") else None)
    page = view.open(f"#/connectors/{name}/history")
    expect(page.locator(".history")).to_contain_text("(another value)")
    page.get_by_role("button", name="Go back to this").click()
    expect(page.get_by_role("dialog")).to_contain_text("Secrets stay as they are")
    expect(page.get_by_role("dialog").locator("tbody tr")).to_have_count(1)
    assert bodies
    assert secret not in "".join(bodies)
    workers[0].request("DELETE", f"/connectors/{name}")


def test_dead_letters_are_looked_at(view: View, workers: list[MillraceWorker]) -> None:
    name = f"letters-{secrets.token_hex(3)}"
    workers[0].create(
        name,
        {
            **BROKEN,
            "topic": name,
            "records": "4",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{name}-dead",
            "errors.deadletterqueue.topic.replication.factor": "1",
        },
    )
    assert wait_until(
        lambda: len(workers[0].request("GET", f"/console/topics/{name}-dead")[1].get("records", ())) == 4, 60
    )
    page = view.open(f"#/connectors/{name}")
    page.get_by_role("link", name="Dead letters").click()
    letters = page.locator(".record")
    expect(letters).to_have_count(4)
    expect(letters.first).to_contain_text("Unknown field: nowhere")
    expect(letters.first).to_contain_text("at TRANSFORMATION")
    view.check()
    letters.first.locator("summary").click()
    expect(letters.first).to_contain_text("__connect.errors.exception.message")
    view.check()
    page.get_by_role("link", name="Topics").first.click()
    page.get_by_role("searchbox").fill(f"{name}-dead")
    expect(page.locator("tbody tr")).to_contain_text("dead letters")
    workers[0].request("DELETE", f"/connectors/{name}")


def test_a_dead_letter_of_a_flow_is_sent_again(view: View, workers: list[MillraceWorker], bootstrap: str) -> None:
    name = f"redriven-{secrets.token_hex(3)}"
    config = {**FLOW, "source.topics": f"{name}-in", "errors.tolerance": "all"}
    dead = {**config, "errors.deadletterqueue.topic.name": f"{name}-dead"}
    body = {"name": name, "config": dead, "initial_state": "STOPPED"}
    assert workers[0].request("POST", "/connectors", body)[0] == 201
    prefix = "__connect.errors"
    reason = (f"{prefix}.exception.message", b"no number")
    send(bootstrap, f"{name}-in", [(b"1", b"{}", ())])
    send(
        bootstrap,
        f"{name}-dead",
        [
            (b"2", b'{"a": 1}', ((f"{prefix}.topic", f"{name}-in".encode()), reason, ("tenant", b"eu"))),
            (b"3", b"{}", ((f"{prefix}.topic", b"elsewhere"), reason)),
        ],
    )
    page = view.open(f"#/connectors/{name}/letters")
    letters = page.locator(".record")
    expect(letters).to_have_count(2)
    letters.nth(0).get_by_role("button", name="Send again").click()
    expect(letters.nth(0)).to_contain_text("a topic that the connector does not read")
    letters.nth(1).get_by_role("button", name="Send again").click()
    expect(letters.nth(1)).to_contain_text(f"Sent to {name}-in, partition 0, offset 1.")
    view.check()
    record = workers[0].request("GET", f"/console/topics/{name}-in?limit=1")[1]["records"][0]
    assert (record["value"], record["headers"]) == ({"a": 1}, [["tenant", "eu"]])
    workers[0].request("DELETE", f"/connectors/{name}")


def test_without_a_topic_for_dead_letters_the_page_says_how(view: View, workers: list[MillraceWorker]) -> None:
    name = f"plain-{secrets.token_hex(3)}"
    workers[0].create(name, {"connector.class": "datagen", "topic": name, "records": "1"})
    page = view.open(f"#/connectors/{name}/letters")
    expect(page.get_by_text("errors.deadletterqueue.topic.name it is set aside")).to_be_visible()
    view.check()
    page.get_by_role("link", name="Tables").click()
    expect(page.get_by_text("A connector of this kind has none")).to_be_visible()
    view.check()
    workers[0].request("DELETE", f"/connectors/{name}")


def test_a_reader_sees_the_history_and_can_not_go_back(closed: Closed, show: Callable[..., View]) -> None:
    view = show(closed.worker.url)
    page = view.open("#/connectors/stock/history")
    log_in(page, "reader")
    expect(page.locator(".history > li").first).to_be_visible()
    expect(page.get_by_role("button", name="Go back to this")).to_have_count(0)
    view.check()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_they_fit_every_width_and_scheme(
    workers: list[MillraceWorker], show: Callable[..., View], scheme: str, width: int
) -> None:
    name = f"parts-{LONG}"
    workers[0].create(name, {"connector.class": "datagen", "topic": name, "records": "1", "rate": str(width)})
    view = show(workers[0].url, color_scheme=scheme, viewport={"width": width, "height": 800})
    for tab, sign in (("history", ".history > li"), ("letters", ".empty"), ("tables", ".empty")):
        page = view.open(f"#/connectors/{name}/{tab}")
        page.reload()
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        view.check()
    workers[0].request("DELETE", f"/connectors/{name}")
