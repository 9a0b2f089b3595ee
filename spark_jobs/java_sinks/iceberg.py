"""Apache Iceberg's own sink (iceberg-kafka-connect). Source of the options: its documentation and configuration class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.translation.converters import BYTES
from spark_jobs.java_sinks.translation.model import ENVELOPE, FLAT, JavaOption, JavaSink

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

_PREFIX: Final = "sink.iceberg."
_CATALOG: Final = "iceberg.catalog."
_OURS: Final = f"{_PREFIX}catalog."
_TABLES: Final = "iceberg.tables"
_OF_TABLE: Final = "iceberg.table."
_TYPE: Final = f"{_CATALOG}type"
_CLASS: Final = f"{_CATALOG}catalog-impl"
_GROUP: Final = "iceberg.connect.group-id"
_INTERVAL: Final = "iceberg.control.commit.interval-ms"
#: Kinds of catalogs -> pyiceberg's.
_KINDS: Final = {"rest": "rest", "hive": "hive", "glue": "glue"}
#: The ends of class names of catalogs -> their kinds.
_CLASSES: Final = {"restcatalog": "rest", "hivecatalog": "hive", "gluecatalog": "glue", "jdbccatalog": "jdbc"}
_NO_CONTROL: Final = "positions are in the commit of the rows, so there is no control topic"
_NO_SPLIT: Final = "a table is named by the topic or by its option; rows are divided by a step of type route"
_NO_HADOOP: Final = "files are written by pyiceberg: set its properties as sink.iceberg.catalog.<property>"
_APPENDS: Final = f"rows are appended; for one row per key set {_PREFIX}mode=upsert, and {_PREFIX}key.columns"
_PARTITIONS: Final = (
    "tables are written without partitions, or by the bucket of their key: leave it out, and write to another table than "
    "Java's"
)
#: Properties of catalogs that pyiceberg knows by the same name; those that are true are secret.
_SAME: Final = {
    **dict.fromkeys(("uri", "warehouse", "scope", "oauth2-server-uri", "prefix", "client.region"), False),
    **dict.fromkeys(("s3.endpoint", "s3.region", "s3.access-key-id", "glue.id", "glue.endpoint"), False),
    **dict.fromkeys(("rest.sigv4-enabled", "rest.signing-name", "rest.signing-region"), False),
    **dict.fromkeys(("credential", "token", "s3.secret-access-key", "s3.session-token"), True),
}

OPTIONS: Final = (
    JavaOption(name="iceberg.catalog", doc="The catalog's name.", default="iceberg", to=(f"{_OURS}name",), copied=True),
    JavaOption(name=_TYPE, doc="Its kind.", to=(f"{_OURS}type",)),
    JavaOption(name=_CLASS, doc="Its class.", to=(f"{_OURS}type",)),
    *(
        JavaOption(
            name=f"{_CATALOG}{name}",
            doc="A property of the catalog.",
            secret=secret,
            to=(f"{_OURS}{name}",),
            copied=True,
        )
        for name, secret in _SAME.items()
    ),
    JavaOption(
        name=f"{_CATALOG}io-impl",
        doc="How files are written.",
        without="pyiceberg chooses by the scheme of the warehouse",
    ),
    JavaOption(
        name=f"{_CATALOG}s3.path-style-access",
        doc="How buckets are addressed.",
        default="false",
        same=("true",),
        without="pyiceberg tries both",
    ),
    JavaOption(name=_TABLES, doc="The tables.", to=(f"{_PREFIX}namespace", f"{_PREFIX}table")),
    JavaOption(
        name="iceberg.tables.dynamic-enabled",
        doc="Whether a field names the table.",
        default="false",
        refused=_NO_SPLIT,
    ),
    JavaOption(name="iceberg.tables.route-field", doc="The field by which rows are divided.", refused=_NO_SPLIT),
    JavaOption(
        name="iceberg.tables.default-commit-branch", doc="The branch.", refused="rows are written to the branch main"
    ),
    JavaOption(name="iceberg.tables.default-id-columns", doc="The identifier fields.", without=_APPENDS),
    JavaOption(name="iceberg.tables.default-partition-by", doc="How tables are partitioned.", refused=_PARTITIONS),
    JavaOption(
        name="iceberg.tables.auto-create-enabled",
        doc="Whether missing tables are created.",
        default="false",
        to=(f"{_PREFIX}auto.create",),
        copied=True,
    ),
    JavaOption(
        name="iceberg.tables.evolve-schema-enabled",
        doc="Whether missing columns are added.",
        default="false",
        to=(f"{_PREFIX}auto.evolve",),
        copied=True,
    ),
    JavaOption(
        name="iceberg.tables.schema-force-optional",
        doc="Whether all columns may be null.",
        default="false",
        same=("true",),
        without="columns that the job adds may be null, but for those of a key",
    ),
    JavaOption(
        name="iceberg.tables.schema-case-insensitive",
        doc="Whether the case of names counts.",
        default="false",
        refused="names are compared as they are: rename columns by a step of type select",
    ),
    JavaOption(name="iceberg.control.topic", doc="The control topic.", default="control-iceberg", without=_NO_CONTROL),
    JavaOption(
        name="iceberg.control.group-id-prefix",
        doc="The groups that read it.",
        default="cg-control",
        without=_NO_CONTROL,
    ),
    JavaOption(name=_INTERVAL, doc="The time between commits.", default="300000", to=("trigger.interval.ms",)),
    JavaOption(
        name="iceberg.control.commit.timeout-ms",
        doc="How long a commit waits for tasks.",
        default="30000",
        without="a commit has all rows of its batch",
    ),
    JavaOption(
        name="iceberg.control.commit.threads",
        doc="Commits at a time.",
        without="tables are committed one after the other",
    ),
    JavaOption(
        name="iceberg.control.commit.max-consecutive-failures",
        doc="How many commits may fail.",
        default="1",
        without="a commit that fails is repeated as sink.iceberg.commit.retries and errors.retry.* say",
    ),
    JavaOption(name=_GROUP, doc="The consumer group.", to=("kafka.group.id", "source.starting.group")),
    JavaOption(name="iceberg.coordinator.transactional.prefix", doc="The prefix of transactions.", without=_NO_CONTROL),
    JavaOption(
        name="iceberg.coordinator-executor-keep-alive-timeout-ms", doc="How long threads live.", without=_NO_CONTROL
    ),
    JavaOption(name="iceberg.hadoop-conf-dir", doc="Hadoop's configuration.", without=_NO_HADOOP),
)


def _translate_iceberg(request: TranslationRequest, answer: TranslatedJob) -> None:
    _translate_catalog(request, answer)
    answer.put(f"{_OURS}name", request.text("iceberg.catalog"), "iceberg.catalog")
    for option, target in (("auto-create-enabled", "auto.create"), ("evolve-schema-enabled", "auto.evolve")):
        name = f"{_TABLES}.{option}"
        answer.put(f"{_PREFIX}{target}", request.text(name).lower(), name)
    answer.put("trigger.interval.ms", request.text(_INTERVAL), _INTERVAL)
    if request.has(_GROUP):
        answer.put("kafka.group.id", request.text(_GROUP), _GROUP)
        answer.put("source.starting.group", request.text(_GROUP), _GROUP)
    # Java appends every record, whatever its key; a record without a value has nothing to append.
    answer.put(f"{_PREFIX}mode", "insert", "connector.class")
    if request.form != ENVELOPE:
        answer.put("source.key.encoding", BYTES, "connector.class")
        answer.put("source.tombstones", "ignore", "connector.class")
    answer.note(
        "connector.class",
        "rows are appended, each once; tables get the columns ums_id_, ums_ts_ and ums_op_ (and others of the sink)",
    )
    answer.note(
        _GROUP,
        "Java moves the offsets of its group before it commits the files: stop it when its topics have been still for longer "
        f"than {_INTERVAL}, or files that no snapshot names yet are lost",
    )
    _translate_tables(request, answer)
    for name in request.config:
        if name.startswith(_OF_TABLE):
            _translate_table(name, answer)


def _translate_catalog(request: TranslationRequest, answer: TranslatedJob) -> None:
    option = _CLASS if request.has(_CLASS) else _TYPE
    kind = request.text(option).lower()
    kind = _CLASSES.get(kind.rpartition(".")[2], kind) if option == _CLASS else kind
    if kind in _KINDS:
        answer.put(f"{_OURS}type", _KINDS[kind], option)
    elif f"{_OURS}type" in request.config:
        pass  # the user has decided
    elif kind == "jdbc":
        answer.refuse(
            option,
            f"the address of a database is written otherwise: set {_OURS}type=sql and {_OURS}uri in this configuration, such "
            "as postgresql+psycopg2://user:password@host/database",
        )
    else:
        answer.refuse(
            option,
            f"the catalog {request.text(option) or '(none)'} has no counterpart: pyiceberg has rest, hive, glue and sql. Set "
            f"{_OURS}type in this configuration",
        )
    for name in request.config:
        if name.startswith(_CATALOG) and name not in request.sink.by_name:
            answer.note(
                name,
                f"{name} has no effect: where pyiceberg has such a property, set it as {_OURS}<property>",
            )


def _translate_tables(request: TranslationRequest, answer: TranslatedJob) -> None:
    if f"{_PREFIX}table" in request.config:
        return  # the user has decided
    tables = request.items(_TABLES)
    if len(tables) != 1:
        answer.refuse(
            _TABLES,
            "a record would be written to each of them: make a connector for each table"
            if tables
            else f"there is no table: name one, or set {_PREFIX}namespace and {_PREFIX}table in this configuration",
        )
        return
    namespace, _, table = tables[0].rpartition(".")
    if namespace:
        answer.put(f"{_PREFIX}namespace", namespace, _TABLES)
    answer.put(f"{_PREFIX}table", table, _TABLES)
    if len(request.topics) != 1:
        answer.put(f"{_PREFIX}table.shared", "true", "topics")


def _translate_table(name: str, answer: TranslatedJob) -> None:
    """An option of one table, ``iceberg.table.<table>.<option>``."""
    option = name.rpartition(".")[2]
    reasons = {"commit-branch": "rows are written to the branch main", "partition-by": _PARTITIONS}
    if option in reasons:
        answer.refuse(name, f"{name} can't be translated: {reasons[option]}")
    else:
        answer.note(name, f"{name} has no effect: {_APPENDS if option == 'id-columns' else _NO_SPLIT}")


SINK: Final = JavaSink(
    title="Iceberg sink",
    class_names=("org.apache.iceberg.connect.IcebergSinkConnector",),
    sink_type="iceberg",
    form=FLAT,
    options=OPTIONS,
    translate=_translate_iceberg,
    prefixes={
        _CATALOG: "",
        _OF_TABLE: "",
        "iceberg.tables.auto-create-props.": "tables are created with the properties that the sink needs: set others in the "
        "catalog",
        "iceberg.tables.write-props.": "files are written as sink.iceberg.compression and sink.iceberg.file.bytes say",
        "iceberg.hadoop.": _NO_HADOOP,
        "iceberg.kafka.": "there is no control topic; the job's Kafka clients take kafka.<option>",
    },
)
