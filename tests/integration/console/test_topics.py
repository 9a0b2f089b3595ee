"""The topic reader: every format of the project, filters, pages, and values that not everybody sees."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from playwright.sync_api import expect

from compose.local.process.service import wait_until

from .test_access import log_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compose.local.registry import SchemaRegistry
    from compose.local.worker import MillraceWorker

    from .conftest import Closed, View

Sent = tuple[bytes | None, bytes | None, "Sequence[tuple[str, bytes]]"]
UMS = {
    "protocol": {"type": "data_increment_data", "version": "1.3"},
    "schema": {"namespace": "mysql.crm.shop.orders.5.0.0", "fields": [{"name": "id", "type": "long"}]},
    "payload": [{"tuple": ["4711"]}],
}
UPDATE = {
    "source": {"keyspace": "shop", "table": "carts", "schema": "1.2", "snapshot": False},
    "key": {"id": 5},
    "write_time": 1,
    "rows": [{"clustering": {}, "cells": {"name": "Ada"}}],
}


def send(bootstrap: str, topic: str, records: Sequence[Sent]) -> None:
    """Write records to a topic, one after the other."""

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for key, value, headers in records:
                await producer.send_and_wait(topic, value, key=key, headers=list(headers))

    asyncio.run_coroutine_threadsafe(run(), _loop()).result(60)


def _loop() -> asyncio.AbstractEventLoop:
    # Playwright has a loop in this thread.
    import threading

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def fill(worker: MillraceWorker, name: str, config: dict[str, Any], count: int = 40) -> None:
    """A topic of this name with that many records, by a connector of this name."""
    worker.create(name, {"connector.class": "datagen", "topic": name, "records": count, "rate": "0", **config})

    def written() -> bool:
        status, answer = worker.request("GET", f"/console/topics/{name}?limit=1")
        return status == 200 and sum(bounds["end"] for bounds in answer["partitions"].values()) >= count

    assert wait_until(written, 60)


@pytest.fixture
def view(workers: list[MillraceWorker], show: Callable[..., View]) -> View:
    return show(workers[0].url)


@pytest.fixture(scope="module")
def changes(workers: list[MillraceWorker]) -> str:
    """A topic with change events of Debezium's form."""
    name = f"changes-{secrets.token_hex(3)}"
    fill(workers[0], name, {"envelope": "debezium"}, 120)
    return name


def test_topics_are_found_from_the_list_and_from_the_connector(view: View, changes: str) -> None:
    page = view.open("#/topics")
    page.get_by_role("searchbox").fill(changes)
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.url.endswith(f"#/topics?q={changes}")
    view.check()
    page.get_by_role("link", name=changes).click()
    expect(page.get_by_role("heading", name=changes)).to_be_visible()
    view.open(f"#/connectors/{changes}/topics")
    page.get_by_role("link", name=changes).last.click()
    expect(page.get_by_role("list", name="Records")).to_be_visible()


def test_the_newest_records_are_first_and_older_ones_follow(view: View, changes: str) -> None:
    page = view.open(f"#/topics/{changes}")
    positions = page.locator(".record-place")
    expect(positions).to_have_count(50)
    expect(positions.first).to_have_text("0:119")
    expect(page.locator(".record").first).to_contain_text("debezium")
    view.check()
    page.get_by_role("button", name="Older records").click()
    expect(positions).to_have_count(100)
    page.get_by_role("button", name="Older records").click()
    expect(positions).to_have_count(120)
    expect(page.get_by_role("button", name="Older records")).to_have_count(0)
    assert positions.all_text_contents() == [f"0:{offset}" for offset in reversed(range(120))]


def test_a_record_is_opened_by_keyboard(view: View, changes: str) -> None:
    page = view.open(f"#/topics/{changes}")
    page.locator(".record summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Value", exact=True)).to_contain_text('"op":')
    expect(page.get_by_label("Key", exact=True)).to_be_visible()
    view.check()


def test_a_condition_in_cel_chooses_records_and_is_in_the_address(view: View, changes: str) -> None:
    page = view.open(f"#/topics/{changes}")
    condition = page.get_by_label("Condition in CEL")
    condition.fill("value.op == 'c' && value.after.sequence < 20")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.get_by_text("20 records of 120 that were looked at")).to_be_visible()
    expect(page.locator(".record")).to_have_count(20)
    expect(page.locator(".record-place").first).to_have_text("0:19")
    assert "where=value.op" in page.url
    page.reload()
    expect(condition).to_have_value("value.op == 'c' && value.after.sequence < 20")
    expect(page.locator(".record")).to_have_count(20)
    page.get_by_text("The REST call").click()
    expect(page.locator(".calls pre")).to_contain_text("where=value.op")
    condition.fill("value.op ==")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.get_by_text("The records can't be read")).to_be_visible()
    view.check()
    condition.fill("value.no.such == 1")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.get_by_text("The condition can't be evaluated for")).to_be_visible()
    expect(page.get_by_text("No record fits yet")).to_be_visible()
    view.check()


def test_a_key_is_found(view: View, bootstrap: str) -> None:
    topic = f"keys-{secrets.token_hex(3)}"
    send(bootstrap, topic, [(f"customer-{number}".encode(), b"{}", ()) for number in range(300)])
    page = view.open(f"#/topics/{topic}")
    page.get_by_label("Key contains").fill("customer-17")
    page.keyboard.press("Enter")
    expect(page.locator(".record")).to_have_count(11)
    expect(page.get_by_text("11 records of 300 that were looked at")).to_be_visible()


@pytest.mark.parametrize("converter", ["AvroConverter", "JsonSchemaConverter", "ProtobufConverter"])
def test_formats_with_a_registry_are_decoded(
    view: View, workers: list[MillraceWorker], registry: SchemaRegistry, converter: str
) -> None:
    name = f"{converter.lower()}-{secrets.token_hex(3)}"
    options = {
        "key.converter": "JsonConverter",
        "value.converter": converter,
        "value.converter.schema.registry.url": registry.url,
    }
    fill(workers[0], name, options)
    page = view.open(f"#/topics/{name}")
    expect(page.locator(".record")).to_have_count(40)
    page.locator(".record summary").first.click()
    expect(page.get_by_role("heading", name="Value")).to_contain_text(converter.removesuffix("Converter"))
    expect(page.get_by_label("Value", exact=True)).to_contain_text('": ')
    view.check()


def test_records_of_others_are_shown_as_they_look(view: View, bootstrap: str) -> None:
    topic = f"looks-{secrets.token_hex(3)}"
    send(
        bootstrap,
        topic,
        [
            (b"a", json.dumps(UMS).encode(), ()),
            (b"\x00\x00\x00\x05", json.dumps(UPDATE).encode(), ()),
            (b"gone", None, ()),
            (b"text", "plain words, \u00e4\u00f6".encode(), (("tenant", b"eu"),)),
            (b"raw", b"\xff\xfe\x00", ()),
            (b"big", b'{"id": 9007199254740993}', ()),
            (b"registry", b"\x00\x00\x00\x00\x07\xff", ()),
        ],
    )
    page = view.open(f"#/topics/{topic}")
    rows = page.locator(".record")
    expect(rows).to_have_count(7)
    for index, text in (
        (6, "data_increment_data mysql.crm.shop.orders.5.0.0"),
        (5, "shop.carts"),
        (4, "tombstone"),
        (3, "plain words, \u00e4\u00f6"),
        (2, "ff fe 00"),
        (1, "9007199254740993"),
    ):
        expect(rows.nth(index)).to_contain_text(text)
    rows.nth(3).locator("summary").click()
    expect(rows.nth(3)).to_contain_text("tenant")
    rows.nth(0).locator("summary").click()
    expect(rows.nth(0)).to_contain_text("schema registry")
    view.check()


def test_a_topic_that_is_not_there_and_one_that_is_not_shown(view: View, workers: list[MillraceWorker]) -> None:
    page = view.open("#/topics")
    page.get_by_label("Another topic").fill("no-such-topic")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_text("There is no topic no-such-topic")).to_be_visible()
    view.check()
    view.open("#/topics/__consumer_offsets")
    expect(page.get_by_text("it may hold secrets, and is not shown")).to_be_visible()
    config = f"{workers[0].group}-configs"
    answer = [workers[0].request("GET", f"/console/topics/{name}")[0] for name in (config, "__consumer_offsets")]
    assert answer[1] == 403


def test_a_reader_sees_what_records_are_made_of_and_no_values(
    closed: Closed, show: Callable[..., View], bootstrap: str
) -> None:
    topic = f"stock-{secrets.token_hex(3)}"
    send(
        bootstrap,
        topic,
        [(b'{"mail": "ada@example"}', b'{"op": "u", "source": {"table": "t"}, "after": {"name": "Ada"}}', ())],
    )
    view = show(closed.worker.url)
    bodies: list[str] = []
    view.page.on("response", lambda answer: bodies.append(answer.text()) if "/console/topics/" in answer.url else None)
    page = view.open(f"#/topics/{topic}")
    log_in(page, "reader")
    expect(page.locator(".record")).to_contain_text("u t")
    page.locator(".record summary").click()
    expect(page.get_by_label("Value", exact=True)).to_contain_text('"name": "***"')
    expect(page.get_by_text("Values are hidden")).to_be_visible()
    expect(page.get_by_label("Condition in CEL")).to_have_count(0)
    assert bodies
    assert "Ada" not in "".join(bodies)
    assert "ada@example" not in "".join(bodies)
    view.check()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_it_fits_every_width_and_scheme(
    workers: list[MillraceWorker], show: Callable[..., View], changes: str, scheme: str, width: int
) -> None:
    view = show(workers[0].url, color_scheme=scheme, viewport={"width": width, "height": 800})
    for fragment, sign in ((f"#/topics/{changes}", ".record"), ("#/topics", "tbody tr")):
        page = view.open(fragment)
        page.reload()
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        view.check()
