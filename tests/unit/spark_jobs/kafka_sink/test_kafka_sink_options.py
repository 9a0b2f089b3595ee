from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connectors.errors import ConfigInvalid
from spark_jobs.config.keys import FRAME
from spark_jobs.sinks.kafka.config import CONFIG, KafkaSinkSettings, group_of, table_group, target_topic
from spark_jobs.sinks.kafka.markers import marker_key
from spark_jobs.sinks.kafka.sink import KafkaSink, find_last_partitions
from spark_jobs.sinks.kafka.writer import header_lists, to_millis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connectors.options import Config


def config(**options: str) -> Config:
    raw = {
        "name": "job",
        "kafka.bootstrap.servers": "b:9092",
        "source.topics": "a,b",
        "source.format": "debezium",
        "sink.type": "kafka",
        "sink.kafka.topic": "${topic}.out",
        **options,
    }
    return FRAME.extended(list(CONFIG.keys.values())).parse(raw)


def test_names_of_topics() -> None:
    assert target_topic("${topic}.out", "a", "") == "a.out"
    assert target_topic("x-${namespace}", "a", "mysql.a.db.tab:le.1") == "x-mysql.a.db.tab_le.1"
    assert target_topic("${database}-${table}", "a", "shop.orders") == "shop-orders"
    assert len(target_topic("${topic}", "a" * 300, "")) == 249
    assert target_topic("${topic}-${column:kind}", "a b", "") == "a_b-${column:kind}"
    for wrong in ("${column:}", "${kind}", "a b", ""):
        with pytest.raises(ConfigInvalid):
            config(**{"sink.kafka.topic": wrong})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sink.kafka.topic": "${namespace}"}, "needs sink.kafka.content=rows"),
        ({"sink.kafka.topic": "${table}"}, "needs sink.kafka.content=rows"),
        ({"sink.kafka.topic": "${column:kind}"}, "needs sink.kafka.content=rows"),
        ({"sink.kafka.format": "ums"}, "sink.kafka.format: it needs sink.kafka.content=rows"),
        (
            {"sink.kafka.content": "rows", "sink.kafka.format": "avro"},
            "sink.kafka.schema.registry.url: is missing",
        ),
        (
            {"sink.kafka.content": "rows", "sink.kafka.schema.registry.url": "http://r"},
            "with sink.kafka.format=avro only",
        ),
        (
            {
                "sink.kafka.content": "rows",
                "sink.kafka.format": "avro",
                "sink.kafka.schema.registry.url": "http://r",
                "sink.kafka.schema.registry.max.retires": "3",
            },
            "sink.kafka.schema.registry.max.retires",
        ),
        ({"sink.kafka.key": "template"}, "need each other"),
        ({"sink.kafka.timestamp.column": "at"}, "needs sink.kafka.content=rows"),
        ({"sink.kafka.header.of": "${table}"}, "needs sink.kafka.content=rows"),
        ({"sink.kafka.content": "rows", "sink.kafka.header.of": "${tabel}"}, "${tabel} is no placeholder"),
        ({"sink.kafka.partitioner": "absent"}, "no installed package has an entry point absent"),
        ({"sink.kafka.key": "columns"}, "needs sink.kafka.content=rows"),
        ({"source.min.partitions": "8"}, "source.min.partitions"),
        ({"sink.kafka.topic": "b"}, "would read what it writes"),
        ({"sink.kafka.producer.bootstrap.servers": "other:9092"}, "another cluster"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], words: str) -> None:
    assert words in KafkaSink.validate(config(**options))[0]


def test_plans_and_names() -> None:
    assert KafkaSink.validate(config()) == []
    assert KafkaSink.plan(config()) == ["copies topic a to a.out", "copies topic b to b.out"]
    assert group_of(config()) == "millrace-job-written"
    settings = KafkaSinkSettings(
        "job", {"sasl.password": "secret"}, "none", "d.t", "g", "m", {}, {}, "source", False, True, "1", 1
    )
    assert settings.transactional_id("a", 3) == "job-d.t-a-3"
    assert "secret" not in repr(settings)
    assert marker_key("", "a", 1) != marker_key("a", "", 1)


def test_timestamps_and_headers_of_records() -> None:
    assert to_millis(pa.array([1_999, None], pa.timestamp("us", tz="UTC"))) == [1, 0]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch: Any = pa.RecordBatch.from_arrays(
        [pa.array([None, [{"key": "a", "value": None}], []], kind)], names=["headers"]
    )
    assert header_lists(batch) == [None, [("a", None)], None]
    assert header_lists(pa.RecordBatch.from_arrays([pa.array([None, []], kind)], names=["headers"])) is None


def test_groups_of_tables_have_letters_that_kafkas_client_takes() -> None:
    assert table_group("job-written", "shop.order lines%20") == "job-written-shop.order lines%20"
    assert table_group("job-written", "shop.T\u00e4ble%") == "job-written-shop.T%C3%A4ble%25"
    assert table_group("g", "a\tb") == "g-a%09b"


def test_the_last_partitions_of_all_topics_are_found_in_one_look() -> None:
    looks = []

    def partitions() -> Iterator[tuple[str, int]]:
        for number in (1, 0, 10, 2):
            for topic in ("a", "b"):
                looks.append(topic)
                yield topic, number

    assert find_last_partitions(partitions()) == {"a": 10, "b": 10}
    assert len(looks) == 8
