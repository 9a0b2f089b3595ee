"""Configurations of Java's sink connectors as jobs: every option is translated, or said what follows from there being none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.config import check_flow, parts
from spark_jobs.java_sinks import connectors
from spark_jobs.java_sinks.translate import COMMON
from worker.job_config import job_form

if TYPE_CHECKING:
    from connectors.api import Translation
    from spark_jobs.connector import SparkJob
    from spark_jobs.java_sinks.model import JavaOption, JavaSink

CLASSES: dict[str, type[SparkJob]] = {
    connector.aliases[0]: connector
    for connector in (
        connectors.DebeziumJdbcSink,
        connectors.ConfluentJdbcSink,
        connectors.AivenJdbcSink,
        connectors.FileStreamSink,
        connectors.RedisSink,
    )
}
JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
AVRO = "io.confluent.connect.avro.AvroConverter"
DEBEZIUM = "io.debezium.connector.jdbc.JdbcSinkConnector"
CONFLUENT = "io.confluent.connect.jdbc.JdbcSinkConnector"
AIVEN = "io.aiven.connect.jdbc.JdbcSinkConnector"
FILE = "org.apache.kafka.connect.file.FileStreamSinkConnector"
REDIS = "com.redis.kafka.connect.RedisSinkConnector"
WORKER = {"bootstrap.servers": "127.0.0.1:1", "key.converter": JSON, "value.converter": JSON}
#: All options of the Java classes, as their documentation and code have them.
ALL = {
    DEBEZIUM: """connection.url connection.username connection.password connection.provider connection.pool.min_size
        connection.pool.max_size connection.pool.acquire_increment connection.pool.timeout connection.restart.on.errors
        insert.mode delete.enabled truncate.enabled primary.key.mode primary.key.fields schema.evolution collection.name.format
        collection.table.format collection.naming.strategy column.naming.strategy quote.identifiers use.time.zone batch.size
        use.reduction.buffer field.include.list field.exclude.list flush.max.retries flush.retry.delay.ms
        dialect.postgres.postgis.schema dialect.postgres.unnest.insert.enabled dialect.sqlserver.identity.insert
        cloud.events.schema.name.pattern""",
    CONFLUENT: """connection.url connection.user connection.password dialect.name connection.attempts connection.backoff.ms
        insert.mode batch.size delete.enabled table.types table.name.format pk.mode pk.fields fields.whitelist db.timezone
        db.timezone.date auto.create auto.evolve quote.sql.identifiers mssql.use.merge.holdlock max.retries retry.backoff.ms
        trim.sensitive.log""",
    AIVEN: """connection.url connection.user connection.password db.timezone dialect.name sql.quote.identifiers insert.mode
        batch.size delete.enabled table.name.format table.name.normalize topics.to.tables.mapping pk.mode pk.fields
        fields.whitelist auto.create auto.evolve max.retries retry.backoff.ms handle.tombstone""",
    FILE: "file",
    REDIS: """redis.cluster redis.host redis.port redis.uri redis.username redis.password redis.timeout redis.pool redis.tls
        redis.insecure redis.key.file redis.key.cert redis.key.password redis.cacert redis.charset redis.command redis.key
        redis.separator redis.multiexec redis.wait.replicas redis.wait.timeout redis.json.path redis.json.path.fixed""",
}
BASE = {
    DEBEZIUM: {
        "topics": "crm.shop.orders",
        "connection.url": "jdbc:postgresql://db:5432/shop",
        "connection.username": "jobs",
        "connection.password": "secret",
        "insert.mode": "upsert",
        "primary.key.mode": "record_key",
        "delete.enabled": "true",
        "schema.evolution": "basic",
    },
    CONFLUENT: {
        "topics": "orders",
        "connection.url": "jdbc:mysql://db/shop",
        "connection.user": "jobs",
        "connection.password": "secret",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "auto.create": "true",
    },
    AIVEN: {
        "topics": "orders",
        "connection.url": "jdbc:postgresql://db/shop",
        "connection.user": "jobs",
        "insert.mode": "upsert",
        "pk.mode": "record_value",
        "pk.fields": "id",
    },
    REDIS: {"topics": "orders", "redis.uri": "redis://redis:6380/2", "redis.command": "HSET"},
    FILE: {"topics": "orders", "file": "/tmp/orders.txt", "value.converter": STRING},
}


def java_sink(class_name: str) -> JavaSink:
    sink = CLASSES[class_name].java_sink
    assert sink is not None
    return sink


def translated(
    class_name: str, options: dict[str, str] | None = None, **more: str
) -> tuple[dict[str, str], Translation]:
    """The job of the base configuration with ``options``; an empty value takes an option out."""
    options_of_test = {"name": "copy", "connector.class": class_name, **BASE[class_name], **(options or {}), **more}
    config = {name: value for name, value in options_of_test.items() if value}
    properties, translation = job_form(CLASSES[class_name], config, WORKER)
    assert translation is not None
    return properties, translation


def refusals(translation: Translation) -> dict[str, str]:
    return {problem.name: problem.message for problem in translation.problems if not problem.warning}


def notes(translation: Translation) -> dict[str, str]:
    return {problem.name: problem.message for problem in translation.problems if problem.warning}


def job_properties(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if not name.startswith("errors.restart")}


@pytest.mark.parametrize("class_name", BASE)
def test_every_option_of_the_java_class_is_declared(class_name: str) -> None:
    assert {option.name for option in java_sink(class_name).options} == set(ALL[class_name].split())


def _options() -> list[Any]:
    shared = [pytest.param(None, option, id=option.name) for option in COMMON]
    single = [
        pytest.param(class_name, option, id=f"{class_name.split('.')[1]}-{option.name}")
        for class_name in BASE
        for option in java_sink(class_name).options
    ]
    return shared + single


@pytest.mark.parametrize(("class_name", "option"), _options())
def test_every_option_is_translated_or_has_a_consequence(class_name: str | None, option: JavaOption) -> None:
    assert [bool(option.to), bool(option.without), bool(option.refused)].count(True) == 1
    if class_name is not None:
        properties = translated(class_name)[0]
        formats = [parts(properties | {"source.format": name}).definition for name in ("plain", "debezium")]
        declared = {name for definition in formats for name in definition.keys}
        lists = ("transform.steps", "source.schema.registry.*", "sink.jdbc.ssl.*")
        assert [name for name in option.to if name not in declared and name not in lists] == []


@pytest.mark.parametrize(
    ("class_name", "option"),
    [case for case in _options() if case.values[0] is not None and (case.values[1].without or case.values[1].refused)],
)
def test_validation_names_what_has_no_counterpart(class_name: str, option: JavaOption) -> None:
    value = "true" if option.default == "false" and "true" not in option.same else "something-else"
    _, translation = translated(class_name, {option.name: value})
    assert option.name in (notes(translation) if option.without else refusals(translation))
    if option.default:
        base = translated(class_name)[1]
        _, translation = translated(class_name, {option.name: option.default})
        assert set(refusals(translation)) == set(refusals(base))
        assert set(notes(translation)) == set(notes(base))


@pytest.mark.parametrize("class_name", BASE)
def test_the_job_is_valid(class_name: str) -> None:
    properties, translation = translated(class_name)
    assert refusals(translation) == {}
    jobs, problems = check_flow(job_properties(properties))
    assert problems == []
    assert len(jobs) == 1
    assert jobs[0][0]["kafka.group.id"] == "connect-copy"
    assert jobs[0][0]["source.starting.group"] == "connect-copy"


def test_debezium_upsert_with_deletes() -> None:
    properties, translation = translated(DEBEZIUM)
    expected = {
        "sink.type": "jdbc",
        "sink.jdbc.url": "jdbc:postgresql://db:5432/shop",
        "sink.jdbc.user": "jobs",
        "sink.jdbc.password": "secret",
        "sink.jdbc.mode": "split",
        "sink.jdbc.delete.mode": "real",
        "sink.jdbc.auto.create": "true",
        "sink.jdbc.auto.evolve": "true",
        "sink.jdbc.table": "crm_shop_orders",
        "source.format": "debezium",
        "source.topics": "crm.shop.orders",
        "source.value.encoding": "json",
        "source.key.encoding": "json",
        "source.truncates": "ignore",
    }
    assert {name: properties.get(name) for name in expected} == expected
    assert "transform.steps" not in properties
    assert translation.origins["sink.jdbc.url"] == "connection.url"
    assert "source.format=plain" in notes(translation)["transforms"]


def test_deletes_that_java_ignores_are_ignored() -> None:
    envelope, _ = translated(DEBEZIUM, {"delete.enabled": "false"})
    assert envelope["transform.steps"] == "without_deletes"
    assert envelope["transform.step.without_deletes.condition"] == "ums_op_ <> 'd'"
    flat, _ = translated(CONFLUENT, {"delete.enabled": "false"})
    assert flat["source.tombstones"] == "ignore"


def test_columns() -> None:
    chosen = {"fields.whitelist": "name,amount"}
    _, translation = translated(CONFLUENT, chosen)
    assert "columns of the key" in refusals(translation)["fields.whitelist"]
    properties, _ = translated(CONFLUENT, chosen | {"pk.fields": "id"})
    assert properties["transform.step.columns.columns"] == "`id`, `name`, `amount`"
    keyless = chosen | {"pk.mode": "none", "insert.mode": "insert", "delete.enabled": ""}
    properties, translation = translated(CONFLUENT, keyless)
    assert refusals(translation) == {}
    assert properties["transform.step.columns.columns"] == "`name`, `amount`"
    assert properties["source.key.encoding"] == "bytes"
    assert check_flow(job_properties(properties))[1] == []


def test_parameters_of_the_url_become_options() -> None:
    url = "jdbc:postgresql://db/shop?sslmode=verify-full&sslrootcert=/ca.pem&currentSchema=sales&ApplicationName=x"
    properties, translation = translated(DEBEZIUM, {"connection.url": url})
    assert properties["sink.jdbc.url"] == "jdbc:postgresql://db/shop"
    assert properties["sink.jdbc.ssl.mode"] == "verify-full"
    assert properties["sink.jdbc.ssl.root.cert"] == "/ca.pem"
    assert properties["sink.jdbc.schema"] == "sales"
    assert "ApplicationName" in notes(translation)["connection.url"]
    _, translation = translated(CONFLUENT, {"connection.url": "jdbc:mysql://db/shop?useSSL=true"})
    assert "useSSL" in refusals(translation)["connection.url"]
    properties, _ = translated(CONFLUENT, {"connection.sslMode": "VERIFY_CA"})
    assert properties["sink.jdbc.ssl.mode"] == "verify-ca"


def test_keys() -> None:
    properties, _ = translated(DEBEZIUM, {"primary.key.fields": "id,part"})
    assert properties["source.key.columns"] == "id,part"
    properties, _ = translated(CONFLUENT, {"pk.mode": "record_value", "pk.fields": "id", "delete.enabled": "false"})
    assert properties["source.key.columns"] == "id"
    assert properties["source.key.encoding"] == "bytes"
    _, translation = translated(CONFLUENT, {"pk.mode": "none", "delete.enabled": ""})
    assert "record_key" in refusals(translation)["pk.mode"]
    _, translation = translated(CONFLUENT, {"pk.mode": "record_value", "delete.enabled": ""})
    assert "pk.fields" in refusals(translation)
    _, translation = translated(DEBEZIUM, {"primary.key.mode": "record_header", "delete.enabled": ""})
    assert "primary.key.mode" in refusals(translation)
    _, translation = translated(DEBEZIUM, {"insert.mode": "update"})
    assert "upsert" in refusals(translation)["insert.mode"]


def test_inserts_are_appended() -> None:
    properties, translation = translated(CONFLUENT, {"insert.mode": "", "pk.mode": "kafka", "delete.enabled": ""})
    assert properties["sink.jdbc.mode"] == "insert"
    assert properties["sink.jdbc.kafka.columns"] == "true"
    assert "kafka_offset_" in notes(translation)["insert.mode"]
    assert check_flow(job_properties(properties))[1] == []


@pytest.mark.parametrize(
    ("class_name", "options", "schema", "table"),
    [
        (DEBEZIUM, {}, None, "crm_shop_orders"),
        (DEBEZIUM, {"collection.name.format": "sales.${topic}"}, "sales", "crm_shop_orders"),
        (DEBEZIUM, {"table.name.format": "${source.db}_${source.table}"}, None, "${database}_${table}"),
        (DEBEZIUM, {"collection.name.format": "${source.schema}.${source.table}"}, "${database}", "${table}"),
        (DEBEZIUM, {"source.format": "plain", "topics": "", "topics.regex": "shop.*"}, None, "${namespace}"),
        (CONFLUENT, {}, "${database}", "${table}"),
        (CONFLUENT, {"table.name.format": "kafka_${topic}"}, None, "kafka_${table}"),
        (CONFLUENT, {"table.name.format": "kafka_${topic}", "topics": "a.b"}, "kafka_a", "b"),
        (AIVEN, {"table.name.normalize": "true"}, None, "${namespace}"),
        (AIVEN, {"topics.to.tables.mapping": "orders:sales.o"}, "sales", "o"),
        (CONFLUENT, {"sink.jdbc.table": "mine_${table}"}, None, "mine_${table}"),
    ],
)
def test_names_of_tables(class_name: str, options: dict[str, str], schema: str | None, table: str) -> None:
    properties, translation = translated(class_name, options)
    assert refusals(translation) == {}
    assert (properties.get("sink.jdbc.schema"), properties["sink.jdbc.table"]) == (schema, table)
    assert check_flow(job_properties(properties))[1] == []


def router(**options: str) -> dict[str, str]:
    options_of_test = {"type": "org.apache.kafka.connect.transforms.RegexRouter", **options}
    return {"transforms": "route", **{f"transforms.route.{name}": value for name, value in options_of_test.items()}}


def test_topics_that_a_router_renames() -> None:
    properties, _ = translated(DEBEZIUM, router(regex=r".*\.(\w+)", replacement="$1"))
    assert properties["sink.jdbc.table"] == "orders"
    topics = {"topics": "crm.shop.orders,crm.shop.lines"}
    properties, _ = translated(DEBEZIUM, router(regex=r".*\.(\w+)", replacement="$1") | topics)
    assert properties["transform.steps"] == "table_0,table_1"
    assert properties["transform.step.table_0.tables"] == "shop.orders"
    assert properties["transform.step.table_0.to"] == "orders"
    assert check_flow(job_properties(properties))[1] == []
    properties, _ = translated(DEBEZIUM, router(regex=r"(\w+)\..*", replacement="all_$1") | topics)
    assert properties["sink.jdbc.table"] == "all_crm"
    assert properties["sink.jdbc.table.shared"] == "true"
    topics = {"topics": "a.x.t,a.y.t,a.y.u"}
    properties, _ = translated(DEBEZIUM, router(regex=r".*\.(\w+)", replacement="$1") | topics)
    assert properties["transform.step.table_0.type"] == "union"
    assert properties["transform.step.table_0.tables"] == "x.t,y.t"
    assert check_flow(job_properties(properties))[1] == []
    _, translation = translated(
        DEBEZIUM, router(regex=r".*\.(\w+)", replacement="$1") | {"topics": "", "topics.regex": "crm.*"}
    )
    assert "sink.jdbc.table" in refusals(translation)["collection.name.format"]


def test_transforms_of_rows_become_steps() -> None:
    transforms = {
        "transforms": "unwrap,hide,types",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.hide.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.hide.exclude": "password",
        "transforms.hide.renames": "at:made_at",
        "transforms.types.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.types.spec": "amount:float64,code:string",
    }
    properties, translation = translated(CONFLUENT, transforms, topics="crm.shop.orders")
    assert refusals(translation) == {}
    assert properties["source.format"] == "debezium"
    assert properties["transform.steps"] == "t_hide,t_types"
    assert properties["transform.step.t_hide.columns"] == "* EXCEPT (`password`, `at`), `at` AS `made_at`"
    assert properties["transform.step.t_types.columns"] == (
        "* EXCEPT (`amount`, `code`), CAST(`amount` AS double) AS `amount`, CAST(`code` AS string) AS `code`"
    )
    assert check_flow(job_properties(properties))[1] == []
    steps = {
        "transform.steps": "paid",
        "transform.step.paid.type": "filter",
        "transform.step.paid.condition": "amount > 0",
    }
    properties, _ = translated(CONFLUENT, transforms | steps, topics="crm.shop.orders")
    assert properties["transform.steps"] == "t_hide,t_types,paid"


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        ({"type": "org.apache.kafka.connect.transforms.InsertField$Value"}, "type", "a step of type select"),
        ({"type": "org.apache.kafka.connect.transforms.MaskField$Value"}, "type", "a step of type mask"),
        ({"type": "org.apache.kafka.connect.transforms.TimestampRouter"}, "type", "a step of type route"),
        ({"type": "org.apache.kafka.connect.transforms.Filter", "predicate": "p"}, "predicate", "with a condition"),
        ({"type": "org.apache.kafka.connect.transforms.ReplaceField$Key"}, "type", "no counterpart"),
        ({"type": "com.example.Own"}, "type", "docs/jobs/steps.md"),
        ({"type": "org.apache.kafka.connect.transforms.Cast$Value", "spec": "int32"}, "spec", "column:type"),
        ({"type": "io.debezium.transforms.ExtractNewRecordState", "add.fields": "op"}, "add.fields", "ums_op_ AS __op"),
    ],
)
def test_other_transforms_are_refused_with_the_step_to_use(options: dict[str, str], option: str, text: str) -> None:
    transforms = {"transforms": "t", **{f"transforms.t.{name}": value for name, value in options.items()}}
    _, translation = translated(CONFLUENT, transforms)
    assert text in refusals(translation)[f"transforms.t.{option}"]


def test_dropped_tombstones() -> None:
    transforms = {
        "transforms": "dropped",
        "transforms.dropped.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.dropped.predicate": "tombstone",
        "predicates": "tombstone",
        "predicates.tombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    }
    properties, translation = translated(CONFLUENT, transforms)
    assert refusals(translation) == {}
    assert properties["source.tombstones"] == "ignore"


def test_deletes_that_the_transform_drops() -> None:
    unwrap = {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"}
    for options, dropped in (
        ({}, False),
        ({"delete.tombstone.handling.mode": "drop"}, True),
        ({"drop.tombstones": "true"}, True),
        ({"drop.tombstones": "false"}, False),
        ({"delete.handling.mode": "none"}, False),
    ):
        more = {f"transforms.u.{name}": value for name, value in options.items()}
        properties, _ = translated(CONFLUENT, unwrap | more, topics="crm.shop.orders")
        assert (properties.get("transform.steps") == "without_deletes") is dropped, options
    _, translation = translated(CONFLUENT, unwrap | {"transforms.u.delete.handling.mode": "rewrite"})
    assert "ums_active_" in refusals(translation)["transforms.u.delete.handling.mode"]


def test_converters() -> None:
    registry = {
        "key.converter": AVRO,
        "value.converter": AVRO,
        "value.converter.schema.registry.url": "http://registry",
        "value.converter.basic.auth.user.info": "user:password",
    }
    properties, _ = translated(DEBEZIUM, registry)
    assert properties["source.value.encoding"] == properties["source.key.encoding"] == "avro"
    assert properties["source.schema.registry.url"] == "http://registry"
    assert properties["source.schema.registry.basic.auth.user.info"] == "user:password"
    assert check_flow(job_properties(properties))[1] == []
    _, translation = translated(DEBEZIUM, {"key.converter": STRING})
    assert "primary.key.fields" in refusals(translation)
    properties, translation = translated(DEBEZIUM, {"key.converter": STRING, "primary.key.fields": "id"})
    assert refusals(translation) == {}
    assert properties["source.key.encoding"] == "bytes"
    _, translation = translated(DEBEZIUM, {"value.converter": "io.confluent.connect.protobuf.ProtobufConverter"})
    assert "JSON" in refusals(translation)["value.converter"]
    _, translation = translated(CONFLUENT, {"key.converter": STRING, "pk.fields": "id"})
    assert "key must be readable" in refusals(translation)["key.converter"]


def test_errors_and_clients() -> None:
    properties, translation = translated(
        DEBEZIUM,
        {
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "bad",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.retry.timeout": "60000",
            "errors.log.enable": "true",
            "consumer.override.group.id": "mine",
            "consumer.override.auto.offset.reset": "latest",
            "consumer.override.sasl.mechanism": "PLAIN",
            "consumer.override.max.poll.records": "5",
            "no.such.option": "x",
            "tasks.max": "4",
            "spark.master": "local[1]",
        },
    )
    expected = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "bad",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "false",
        "kafka.group.id": "mine",
        "source.starting.group": "mine",
        "source.starting.offsets": "latest",
        "kafka.sasl.mechanism": "PLAIN",
        "spark.master": "local[1]",
    }
    assert {name: properties.get(name) for name in expected} == expected
    assert "errors.retry.timeout" not in properties
    assert {
        "errors.retry.timeout",
        "errors.log.enable",
        "consumer.override.max.poll.records",
        "no.such.option",
        "tasks.max",
    } <= notes(translation).keys()
    properties, translation = translated(DEBEZIUM, {"errors.deadletterqueue.topic.name": "bad"})
    assert "errors.deadletterqueue.topic.name" not in properties
    assert "errors.tolerance=none" in notes(translation)["errors.deadletterqueue.topic.name"]


def test_lines() -> None:
    properties, _ = translated(FILE)
    assert properties["sink.type"] == "lines"
    assert properties["sink.lines.path"] == "/tmp/orders.txt"
    properties, translation = translated(FILE, {"file": ""})
    assert properties["sink.type"] == "console"
    assert "log" in notes(translation)["file"]
    assert check_flow(job_properties(properties))[1] == []
    _, translation = translated(FILE, {"value.converter": AVRO})
    assert "value.converter" in refusals(translation)
    _, translation = translated(FILE, router(regex="a", replacement="b"))
    assert refusals(translation) == {}


def test_redis() -> None:
    properties, translation = translated(REDIS)
    expected = {
        "sink.type": "redis",
        "sink.redis.url": "redis://redis:6380/2",
        "sink.redis.form": "hash",
        "sink.redis.key": "${namespace}:${key}",
    }
    assert {name: properties.get(name) for name in expected} == expected
    properties, _ = translated(
        REDIS, {"redis.uri": "rediss://me:p%40ss@redis:6380", "redis.key": "", "redis.separator": "/"}
    )
    assert properties["sink.redis.url"] == "rediss://redis:6380"
    assert (properties["sink.redis.user"], properties["sink.redis.password"]) == ("me", "p@ss")
    assert properties["sink.redis.key"] == "${namespace}/${key}"
    properties, _ = translated(
        REDIS, {"redis.uri": "", "redis.host": "here", "redis.tls": "true", "redis.command": "XADD"}
    )
    assert properties["sink.redis.url"] == "rediss://here:6379"
    assert (properties["sink.redis.form"], properties["sink.redis.key"]) == ("stream", "${namespace}")
    text = {"redis.command": "JSONSET", "value.converter": STRING, "key.converter": STRING}
    _, translation = translated(REDIS, text)
    assert "source.key.columns" in refusals(translation)["key.converter"]
    properties, translation = translated(REDIS, text | {"source.key.columns": "id"})
    assert refusals(translation) == {}
    assert properties["sink.redis.json.command"] == "JSON.SET"
    assert "JSON objects" in notes(translation)["value.converter"]
    assert check_flow(job_properties(properties))[1] == []
    _, translation = translated(REDIS, {"redis.command": "LPUSH"})
    assert "sink.redis.form" in refusals(translation)["redis.command"]
    properties, _ = translated(REDIS, router(regex="(.*)s", replacement="$1"))
    assert properties["sink.redis.key"] == "order:${key}"
