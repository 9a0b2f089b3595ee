"""Records become bytes in runs; a bad one is refused alone."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from connectors.api import EVERY_PARTITION, BadRecord, Batch, Header, SameAs, SourceRecord
from connectors.errors import Retriable
from connectors.schema import INT32, INT64, STRING
from worker.converters.json import JsonConverter
from worker.converters.simple_header import SimpleHeaderConverter
from worker.converters.string import StringConverter
from worker.host.delivery.batch_delivery import unit_of
from worker.host.delivery.convert import Conversion, Refused, split_runs
from worker.host.errors import ErrorStage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SCHEMAS = (None, INT32, INT64)


@given(
    st.lists(
        st.tuples(st.sampled_from(["t", "u"]), st.sampled_from(SCHEMAS), st.sampled_from(SCHEMAS)),
        min_size=1,
        max_size=30,
    )
)
def test_runs_are_uniform_and_keep_the_order_within_topics(kinds: list[tuple[str, Any, Any]]) -> None:
    records = [
        SourceRecord({}, {"n": number}, topic, number, value_schema, None, key_schema)
        for number, (topic, value_schema, key_schema) in enumerate(kinds)
    ]
    runs = split_runs(records)
    for run in runs:
        assert len({(record.topic, id(record.value_schema), id(record.key_schema)) for record in run}) == 1
    for topic in "tu":
        assert [record.value for run in runs for record in run if record.topic == topic] == [
            record.value for record in records if record.topic == topic
        ]
    assert len(runs) == sum(len(list(groupby([kind for kind in kinds if kind[0] == topic]))) for topic in "tu")
    if len(set(kinds)) == 1:
        assert runs[0] is records, "the usual case copies nothing"


async def once(call: Callable[[], Awaitable[Any]]) -> None:
    await call()


def conversion() -> Conversion:
    return Conversion(
        StringConverter({}, is_key=True),
        JsonConverter({"schemas.enable": "false"}, is_key=False),
        SimpleHeaderConverter({}),
        once,
    )


async def test_values_without_keys_and_headers_take_the_short_way() -> None:
    refused: list[Refused] = []
    converted = await conversion().convert([SourceRecord({}, {}, "t", {"n": n}) for n in range(3)], refused)
    assert converted is not None
    assert converted.values == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    assert (converted.keys, converted.headers, converted.partitions, converted.timestamps) == (None, None, None, None)
    assert refused == []


async def test_everything_a_record_has_arrives() -> None:
    record = SourceRecord({}, {}, "t", {"n": 1}, None, "k", STRING, 3, (Header("h", "v", STRING),), 12)
    converted = await conversion().convert([record, SourceRecord({}, {}, "t", None, None, None, STRING)], [])
    assert converted is not None
    assert converted.values == [b'{"n":1}', None]
    assert converted.keys == [b"k", None]
    assert converted.partitions == [3, None]
    assert converted.timestamps == [12, None]
    assert converted.headers == [[("h", b"v")], []]


async def test_another_key_can_choose_the_partition() -> None:
    records = [
        SourceRecord({}, {}, "t", 1, None, key, STRING, partition)
        for key, partition in (("beat", SameAs("rows")), ("k", None), ("k", 4), ("k", SameAs({})))
    ]
    converted = await Conversion(
        JsonConverter({"schemas.enable": "false"}, is_key=True),
        JsonConverter({}, is_key=False),
        SimpleHeaderConverter({}),
        once,
    ).convert(records, [])
    assert converted is not None
    assert converted.keys == [b'"beat"', b'"k"', b'"k"', b'"k"']
    assert converted.partitions == [None, None, 4, None]
    assert converted.partition_keys is not None
    assert converted.partition_keys[:3] == [b'"rows"', None, None]


async def test_a_record_for_every_partition_is_copied_behind_those_before_it() -> None:
    keys_and_partitions: list[tuple[str, Any]] = [
        ("a", None),
        ("beat", EVERY_PARTITION),
        ("b", 1),
        ("c", SameAs("a")),
        ("beat", EVERY_PARTITION),
    ]
    records = [
        SourceRecord({}, {}, "t", number, None, key, STRING, partition)
        for number, (key, partition) in enumerate(keys_and_partitions)
    ]
    converted = await conversion().convert(records, [])
    assert converted is not None
    spread = converted.spread(3)
    assert spread.values == [b"0", b"1", b"1", b"1", b"2", b"3", b"4", b"4", b"4"]
    assert spread.partitions == [None, 0, 1, 2, 1, None, 0, 1, 2]
    assert spread.keys == [b"a", b"beat", b"beat", b"beat", b"b", b"c", b"beat", b"beat", b"beat"]
    assert spread.partition_keys is not None
    assert spread.partition_keys[5] == b"a"
    assert [record.value for record in spread.records] == [0, 1, 1, 1, 2, 3, 4, 4, 4]
    plain = await conversion().convert(records[:1], [])
    assert plain is not None
    assert plain.spread(3) is plain


class Registering(JsonConverter):
    """Notes which schemas it is asked to register."""

    null_needs_schema = False

    def __init__(self) -> None:
        super().__init__({"schemas.enable": "false"}, is_key=False)
        self.asked: list[Any] = []

    async def prepare(self, topic: str, schema: Any) -> None:
        self.asked.append((topic, schema))


async def test_no_schema_is_registered_for_tombstones_and_records_without_keys() -> None:
    key, value = Registering(), Registering()
    both = Conversion(key, value, SimpleHeaderConverter({}), once)
    tombstone, row = SourceRecord({}, {}, "t", None), SourceRecord({}, {}, "t", 5)
    converted = await both.convert([tombstone, tombstone], [])
    assert converted is not None
    assert (converted.keys, converted.values) == (None, [None, None])
    assert (key.asked, value.asked) == ([], [])
    # Values that do need one get it, also next to nulls.
    converted = await both.convert([tombstone, row], [])
    assert converted is not None
    assert converted.values == [None, b"5"]
    converted = await both.convert([SourceRecord({}, {}, "t", 6, None, "k"), tombstone], [])
    assert converted is not None
    assert (converted.keys, converted.values) == ([b'"k"', None], [b"6", None])
    assert key.asked == [("t", None)]
    assert set(value.asked) == {("t", None)}


async def test_bad_records_are_refused_alone_with_their_stage() -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError("no text")

    good = SourceRecord({}, {}, "t", {"n": 1}, None, "k")
    records = [
        good,
        SourceRecord({}, {}, "t", {"n": object()}, None, "k"),
        good,
        SourceRecord({}, {}, "t", {"n": 2}, None, Broken()),
    ]
    refused: list[Refused] = []
    converted = await conversion().convert(records, refused)
    assert converted is not None
    assert list(converted.records) == [good, good]
    assert converted.keys == [b"k", b"k"]
    assert [(item.record, item.stage) for item in refused] == [
        (records[1], ErrorStage.VALUE_CONVERTER),
        (records[3], ErrorStage.KEY_CONVERTER),
    ]
    assert refused[0].executing == "worker.converters.json.JsonConverter"


async def test_nothing_is_left_of_a_run_of_bad_records() -> None:
    refused: list[Refused] = []
    assert await conversion().convert([SourceRecord({}, {}, "t", {"n": object()})] * 3, refused) is None
    assert len(refused) == 3


class Away(JsonConverter):
    """Needs a server that is unavailable at the first two of its values."""

    def __init__(self) -> None:
        super().__init__({"schemas.enable": "false"}, is_key=False)
        self.asked = 0

    def encoder(self, topic: str, schema: Any) -> Callable[[Any], bytes | None]:
        encode = super().encoder(topic, schema)

        def asking(value: Any) -> bytes | None:
            if value == "asks":
                self.asked += 1
                if self.asked <= 2:
                    raise Retriable("the key service is away")
            return encode(value)

        return asking


async def test_an_outage_while_records_are_converted_is_waited_for() -> None:
    pauses: list[Retriable] = []

    async def persist(call: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await call()
            except Retriable as error:
                pauses.append(error)
            else:
                return

    refused: list[Refused] = []
    records = [SourceRecord({}, {}, "t", value) for value in (object(), 1, "asks", 2)]
    converted = await Conversion(StringConverter({}, is_key=True), Away(), SimpleHeaderConverter({}), persist).convert(
        records, refused
    )
    assert converted is not None
    assert converted.values == [b"1", b'"asks"', b"2"]
    assert [item.record for item in refused] == records[:1], "a bad record before it is refused once"
    assert len(pauses) == 1, "the first try was without a pause"


def test_a_unit_has_the_last_position_of_each_partition() -> None:
    a, b, other_a = {"p": "a"}, {"p": "b"}, {"p": "a"}
    records = [
        SourceRecord(a, {"n": 1}, "t"),
        SourceRecord(b, {"n": 2}, "t"),
        SourceRecord(other_a, {"n": 3}, "t"),
        SourceRecord(b, {"n": 4}, "t"),
        SourceRecord(a, {"n": 5}, "t", timestamp=77),
    ]
    unit = unit_of(Batch(records))
    assert {partition["p"]: offset for _, partition, offset in unit.positions} == {"a": {"n": 5}, "b": {"n": 4}}
    assert unit.timestamp == 77
    bad = (BadRecord({"p": "a"}, {"n": 9}, ValueError()), BadRecord({"p": "c"}, {"n": 6}, ValueError()))
    unit = unit_of(Batch(records, bad, (({"p": "b"}, {"n": 8}), ({"p": "d"}, None))))
    assert {partition["p"]: offset for _, partition, offset in unit.positions} == {
        "a": {"n": 5},
        "b": {"n": 8},
        "c": {"n": 6},
        "d": None,
    }
    assert unit_of(Batch([])).positions == ()
