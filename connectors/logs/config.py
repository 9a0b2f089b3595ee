"""Options of the logs connector; those of reading files are shared with the connector file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import ConfigInvalid
from connectors.linear_regex import PatternInvalid, compile_pattern
from connectors.logs.keys import make_keys
from connectors.logs.network.options import INPUT, NETWORK_KEYS, SCHEMES, network_problems
from connectors.logs.rules.built import BuiltRules, build_any, build_rules
from connectors.logs.rules.model import parse_rules
from connectors.logs.rules.tools.preview import check_golden
from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigProblem,
    ConfigType,
    Importance,
    at_least,
    between,
    invalid,
    non_empty,
    one_of,
)
from connectors.text_files.joining import JoinSettings
from connectors.text_files.options import BATCH_SIZE, DIRECTORY, FILE, LINE_LIMIT, READING_KEYS, reading_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RULES: Final = "rules"
RULES_FILE: Final = "rules.file"
RULES_NAME: Final = "rules.name"
RULES_VERSION: Final = "rules.version"
#: The rule set of ``rules.name``, where a configuration is checked; put there by the worker, not by users.
RULES_DOCUMENT: Final = "rules.document"
PREFIX: Final = "topic.prefix"
OUTPUT: Final = "output"
ID_COLUMN: Final = "row.id.column"
KEY_TEMPLATE: Final = "row.key.template"
TIME_COLUMN: Final = "row.timestamp.column"
HOST: Final = "host"
TOPICS: Final = "kafka.topics"
BROKERS: Final = "kafka.bootstrap.servers"
KAFKA_FORMAT: Final = "kafka.format"
KAFKA_START: Final = "kafka.start"
KAFKA_CHECK_INTERVAL: Final = "kafka.partitions.check.interval.ms"
EVENT_START: Final = "multiline.start"
EVENT_LINES: Final = "multiline.most.lines"
EVENT_WAIT: Final = "multiline.wait.ms"
HEARTBEAT: Final = "heartbeat.interval.ms"
HEARTBEAT_PREFIX: Final = "topic.heartbeat.prefix"
HEARTBEAT_LINE: Final = "heartbeat.line"
PROTOCOL: Final = "kafka.security.protocol"
MECHANISM: Final = "kafka.sasl.mechanism"
USER: Final = "kafka.sasl.username"
PASSWORD: Final = "kafka.sasl.password"  # noqa: S105 - the name of an option
AUTHORITIES: Final = "kafka.ssl.ca.file"
#: The partitions of one task; made by the connector, not by users.
TASK_PARTITIONS: Final = "task.partitions"
TASK_ADDED: Final = "task.partitions.added"
TASK_PART: Final = "task.part"
FROM_FILES: Final = "file"
FROM_KAFKA: Final = "kafka"

_RULES_GROUP: Final = "Rules"
_ROWS_GROUP: Final = "Rows"
_KAFKA_GROUP: Final = "Lines from Kafka"
_EVENTS_GROUP: Final = "Events of several lines"
_HEARTBEATS_GROUP: Final = "Heartbeats"


def _check_pattern(name: str, value: Any) -> str | None:
    if value is None:
        return None
    try:
        compile_pattern(value)
    except PatternInvalid as error:
        return invalid(name, value, str(error))
    return None


def _check_version(name: str, value: Any) -> str | None:
    return None if value is None else at_least(1)(name, value)


CONFIG: Final = ConfigDef(
    [
        ConfigKey(
            name=INPUT,
            type=ConfigType.STRING,
            default=FROM_FILES,
            importance=Importance.HIGH,
            validator=one_of(FROM_FILES, FROM_KAFKA, *SCHEMES),
            doc="Where lines come from: file reads file or directory, kafka reads kafka.topics; syslog, relp, lumberjack and "
            "http take what senders bring to the addresses of listen.",
            example=FROM_KAFKA,
        ),
        ConfigKey(
            name=PREFIX,
            type=ConfigType.STRING,
            importance=Importance.HIGH,
            validator=non_empty,
            doc="The rows of table NAME go to the topic PREFIX.NAME, and lines that no group accepts to "
            "PREFIX.unknown_table.",
            example="logs",
        ),
        ConfigKey(
            name=FILE,
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            doc="With input=file: path of the file to read.",
            example="/var/log/app.log",
        ),
        ConfigKey(
            name=BATCH_SIZE,
            type=ConfigType.INT,
            default=2000,
            importance=Importance.LOW,
            unit="lines",
            validator=between(1, 10_000),
            doc="How many lines a batch is made of at the most.",
        ),
        ConfigKey(
            name=RULES,
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            group=_RULES_GROUP,
            doc="The rule set, in YAML or JSON; see docs/rules.md. Give one of this, rules.file and rules.name.",
            example='{"tables": [{"name": "lines", "groups": [{"name": "all", "steps": [{"saveAs": {"columns": '
            '[{"name": "line"}]}}]}]}]}',
        ),
        ConfigKey(
            name=RULES_FILE,
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            group=_RULES_GROUP,
            doc="A file with the rule set. It must be on every worker, and is read when a task starts.",
            example="/etc/millrace/rules/shop.yml",
        ),
        ConfigKey(
            name=RULES_NAME,
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            group=_RULES_GROUP,
            doc="A rule set that the cluster keeps (PUT /rules/NAME).",
            example="access",
        ),
        ConfigKey(
            name=RULES_VERSION,
            type=ConfigType.INT,
            default=None,
            group=_RULES_GROUP,
            unit="version",
            validator=_check_version,
            doc="The version of rules.name. Not set means the newest: a new version is taken over between two batches, "
            "without a restart.",
            example="3",
        ),
        ConfigKey(
            name=RULES_DOCUMENT,
            type=ConfigType.STRING,
            default=None,
            internal=True,
            doc="The rules of rules.name while a configuration is checked; set by the worker.",
        ),
        ConfigKey(
            name=OUTPUT,
            type=ConfigType.STRING,
            default="plain",
            group=_ROWS_GROUP,
            validator=one_of("plain", "debezium", "ums"),
            doc="The form of records: plain rows, Debezium's change events with op=c, or UMS messages.",
        ),
        ConfigKey(
            name=ID_COLUMN,
            type=ConfigType.STRING,
            default="log_id",
            group=_ROWS_GROUP,
            validator=non_empty,
            doc="The column, behind those of saveAs, that identifies a row: the position of its line, and its number among "
            "the rows of its table from that line. It is also the record's key, unless row.key.template is set.",
        ),
        ConfigKey(
            name=KEY_TEMPLATE,
            type=ConfigType.STRING,
            default=None,
            group=_ROWS_GROUP,
            doc="The record's key as text: {user} is the value of a column, {@host} of where the line comes from, {{ and }} "
            "are braces. Tables that lack one of the columns keep the identity as their key. With output=ums the key stays "
            "that of UMS, and the text decides the partition.",
            example="{@host}/{user}",
        ),
        ConfigKey(
            name=TIME_COLUMN,
            type=ConfigType.STRING,
            default=None,
            group=_ROWS_GROUP,
            doc="A datetime column whose value becomes the record's timestamp, in tables that have it. Other records have "
            "the time at which the line was read, or with input=kafka or from the network the time that its sender gives.",
            example="time",
        ),
        ConfigKey(
            name=HOST,
            type=ConfigType.STRING,
            default=None,
            group=_ROWS_GROUP,
            doc="What @host is in rules, and the host in unknown_table, where the record does not name its host. Not set "
            "means the name of the worker's machine, or the address of the sender where lines come from the network.",
            example="web-1",
        ),
        ConfigKey(
            name=TOPICS,
            type=ConfigType.LIST,
            default=[],
            group=_KAFKA_GROUP,
            importance=Importance.HIGH,
            doc="With input=kafka: the topics to read. Their partitions are divided among the tasks.",
            example="filebeat",
        ),
        ConfigKey(
            name=BROKERS,
            type=ConfigType.LIST,
            default=[],
            group=_KAFKA_GROUP,
            importance=Importance.HIGH,
            doc="With input=kafka: addresses of the cluster that has these topics.",
            example="kafka-1:9092,kafka-2:9092",
        ),
        ConfigKey(
            name=KAFKA_FORMAT,
            type=ConfigType.STRING,
            default="auto",
            group=_KAFKA_GROUP,
            validator=one_of("auto", "plain"),
            doc="What a record's value is: auto recognises the JSON of Filebeat, Logstash, Fluent Bit and Flume, and Flume's "
            "Avro, takes line, host, file and time out of it, and takes any other value as a line; plain takes every value "
            "as a line.",
        ),
        ConfigKey(
            name=KAFKA_START,
            type=ConfigType.STRING,
            default="earliest",
            group=_KAFKA_GROUP,
            validator=one_of("earliest", "latest"),
            doc="Where to start in a partition without a saved offset. One that is added to a topic which is read already "
            "is read from its first record.",
        ),
        ConfigKey(
            name=KAFKA_CHECK_INTERVAL,
            type=ConfigType.INT,
            default=60_000,
            unit="ms",
            group=_KAFKA_GROUP,
            importance=Importance.LOW,
            validator=at_least(100),
            doc="How often to look for new partitions.",
        ),
        ConfigKey(
            name=PROTOCOL,
            type=ConfigType.STRING,
            default="PLAINTEXT",
            group=_KAFKA_GROUP,
            importance=Importance.LOW,
            validator=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
            doc="How to connect to the cluster of the topics.",
        ),
        ConfigKey(
            name=MECHANISM,
            type=ConfigType.STRING,
            default="PLAIN",
            group=_KAFKA_GROUP,
            importance=Importance.LOW,
            validator=one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
            doc="How to log in, with a SASL protocol.",
        ),
        ConfigKey(
            name=USER,
            type=ConfigType.STRING,
            default=None,
            group=_KAFKA_GROUP,
            importance=Importance.LOW,
            doc="The user, with a SASL protocol.",
            example="logs",
        ),
        ConfigKey(
            name=PASSWORD,
            type=ConfigType.PASSWORD,
            default=None,
            group=_KAFKA_GROUP,
            importance=Importance.LOW,
            doc="The user's password.",
            example="${file:/etc/millrace/secrets.properties:logs}",
        ),
        ConfigKey(
            name=AUTHORITIES,
            type=ConfigType.STRING,
            default=None,
            group=_KAFKA_GROUP,
            importance=Importance.LOW,
            doc="A PEM file with the authorities to trust, with an SSL protocol. Not set means the system's.",
            example="/etc/millrace/ca.pem",
        ),
        *NETWORK_KEYS,
        *READING_KEYS,
        ConfigKey(
            name=EVENT_START,
            type=ConfigType.STRING,
            default=None,
            group=_EVENTS_GROUP,
            validator=_check_pattern,
            doc="With input=file or kafka: an expression that matches the first line of an event. The lines up to the next "
            "match, of the same host and file, are given to the rules as one, joined by line feeds. Not set means that each "
            "line is an event.",
            example=r"^\d{4}-\d\d-\d\d ",
        ),
        ConfigKey(
            name=EVENT_LINES,
            type=ConfigType.INT,
            default=500,
            unit="lines",
            group=_EVENTS_GROUP,
            importance=Importance.LOW,
            validator=between(1, 10_000),
            doc="The most lines of an event; the next line starts another one.",
        ),
        ConfigKey(
            name=EVENT_WAIT,
            type=ConfigType.INT,
            default=1000,
            unit="ms",
            group=_EVENTS_GROUP,
            importance=Importance.LOW,
            validator=between(10, 600_000),
            doc="How long a file, or a host and file in a topic, must be quiet until its last event is taken as complete.",
        ),
        ConfigKey(
            name=HEARTBEAT,
            type=ConfigType.INT,
            default=0,
            unit="ms",
            group=_HEARTBEATS_GROUP,
            validator=at_least(0),
            doc="How often a record for each input that is in order, and for each host that wrote heartbeat lines, goes to the "
            "heartbeat topic; 0: never. The metrics of heartbeats are there all the same.",
            example="10000",
        ),
        ConfigKey(
            name=HEARTBEAT_PREFIX,
            type=ConfigType.STRING,
            default="__debezium-heartbeat",
            group=_HEARTBEATS_GROUP,
            importance=Importance.LOW,
            validator=non_empty,
            aliases=("heartbeat.topics.prefix",),
            doc="First part of the name of the topic for heartbeats; topic.prefix is the second.",
        ),
        ConfigKey(
            name=HEARTBEAT_LINE,
            type=ConfigType.STRING,
            default=None,
            group=_HEARTBEATS_GROUP,
            validator=_check_pattern,
            doc="An expression that matches lines which a host writes now and then to show that its log, and all on the way to "
            "here, works. They make no rows. Not set means that there are none.",
            example="^millrace heartbeat",
        ),
        ConfigKey(
            name=TASK_PARTITIONS,
            type=ConfigType.STRING,
            default=None,
            internal=True,
            doc="The partitions of one task, a JSON list of topic and number; set by the connector.",
        ),
        ConfigKey(
            name=TASK_ADDED,
            type=ConfigType.STRING,
            default=None,
            internal=True,
            doc="The partitions that were added to a topic which is read already, as in task.partitions; set by the "
            "connector.",
        ),
        ConfigKey(
            name=TASK_PART,
            type=ConfigType.STRING,
            default=None,
            internal=True,
            doc="Which of how many tasks it is, as in 0/2, for UMS heartbeats; set by the connector.",
        ),
    ]
)


def load_rules(config: Mapping[str, Any]) -> BuiltRules:
    """The rule set of a configuration, checked. Reads ``rules.file``: blocks for a moment.

    Raises:
        ConfigInvalid: it is missing, or something in it is wrong; every complaint is in the message.
    """
    rules_source, name = config[RULES], RULES
    if not rules_source:
        name = config[RULES_FILE] or ""
        if not name:
            message = "Give rules, a file with them in rules.file, or the name of a rule set in rules.name"
            raise ConfigInvalid(invalid(RULES, rules_source, message))
        try:
            rules_source = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigInvalid(invalid(RULES_FILE, name, f"The file can't be read: {error}")) from None
    rules = _check_tables(config, build_rules(parse_rules(rules_source, name)))
    failures = check_golden(rules)
    if failures:
        first = failures[0]
        raise ConfigInvalid(
            f"rule set {rules.name}: {len(failures)} of {len(rules.golden)} golden lines make other rows than they must. "
            f"The first is {first.line!r}: it must make {first.expected} and makes {first.actual}. Change the rules, or the "
            "golden line if its rows are right now"
        )
    return rules


def check_stored(config: Mapping[str, Any], document: Any, name: str) -> BuiltRules:
    """A rule set that the cluster keeps, for a connector. Its golden lines were run when it was saved.

    Args:
        config: the connector's options.
        document: the rules, as text or decoded.
        name: of the rule set.

    Raises:
        ConfigInvalid: it can't work, or not with these options.
    """
    return _check_tables(config, build_any(document, name))


def _check_tables(config: Mapping[str, Any], rules: BuiltRules) -> BuiltRules:
    for table, schema in rules.schemas.items():
        if schema.field(config[ID_COLUMN]) is not None:
            raise ConfigInvalid(
                invalid(ID_COLUMN, config[ID_COLUMN], f"Table {table} has a column of this name; choose another one")
            )
    template = config[KEY_TEMPLATE]
    try:
        keys = make_keys(template, rules.schemas, config[ID_COLUMN])
    except ConfigInvalid as error:
        raise ConfigInvalid(invalid(KEY_TEMPLATE, template, str(error))) from None
    if template and not keys:
        tables = ", ".join(rules.schemas)
        raise ConfigInvalid(invalid(KEY_TEMPLATE, template, f"No table has all of its columns; tables: {tables}"))
    return rules


def check_config(config: Mapping[str, Any]) -> list[ConfigProblem]:
    """Complaints about what single options can't tell. Reads ``rules.file``: blocks for a moment."""
    problems: list[ConfigProblem] = []
    if config[INPUT] == FROM_FILES:
        problems += reading_problems(config)
        if not config[FILE] and not config[DIRECTORY]:
            problems.append(ConfigProblem(FILE, invalid(FILE, config[FILE], "Give file or directory with input=file")))
    elif config[INPUT] in SCHEMES:
        problems += network_problems(config, config[INPUT])
    else:
        problems += [
            ConfigProblem(name, invalid(name, config[name], "It is needed with input=kafka"))
            for name in (TOPICS, BROKERS)
            if not any(config[name])
        ]
        if config[PROTOCOL].startswith("SASL") and not (config[USER] and config[PASSWORD]):
            problems.append(
                ConfigProblem(USER, invalid(USER, config[USER], f"Give {USER} and {PASSWORD} with a SASL protocol"))
            )
    return problems + _rule_problems(config)


def _rule_problems(config: Mapping[str, Any]) -> list[ConfigProblem]:
    """Complaints about the rules, and about where they are used."""
    used = [name for name in (RULES, RULES_FILE, RULES_NAME) if config[name]]
    if len(used) > 1:
        message = f"Give one of {RULES}, {RULES_FILE} and {RULES_NAME}; {' and '.join(used)} are set"
        return [ConfigProblem(used[-1], invalid(used[-1], config[used[-1]], message))]
    if config[RULES_VERSION] and not config[RULES_NAME]:
        message = f"It is the version of {RULES_NAME}, which is not set"
        return [ConfigProblem(RULES_VERSION, invalid(RULES_VERSION, config[RULES_VERSION], message))]
    try:
        if not config[RULES_NAME]:
            load_rules(config)
        elif config[RULES_DOCUMENT]:  # whether there is such a rule set only the cluster knows
            check_stored(config, config[RULES_DOCUMENT], config[RULES_NAME])
    except ConfigInvalid as error:
        return [ConfigProblem(used[0] if used else RULES, str(error))]
    return []


def join_settings(config: Mapping[str, Any]) -> JoinSettings | None:
    """The setting of which lines of files or topics belong together; None if each is an event."""
    if not config[EVENT_START]:
        return None
    search = compile_pattern(config[EVENT_START]).search
    is_start: Callable[[str], Any] = search
    if config[HEARTBEAT_LINE]:  # it is no part of the event before it
        is_heartbeat = compile_pattern(config[HEARTBEAT_LINE]).search
        is_start = lambda line: search(line) or is_heartbeat(line)  # noqa: E731
    return JoinSettings(is_start, config[EVENT_LINES], config[LINE_LIMIT], config[EVENT_WAIT] / 1000)


def task_partitions(config: Mapping[str, Any], option: str = TASK_PARTITIONS) -> list[tuple[str, int]]:
    """The Kafka partitions of one task, or with ``TASK_ADDED`` those that were added to a topic.

    Raises:
        ConfigInvalid: the option is not a JSON list of topics and numbers.
    """
    try:
        return msgspec.json.decode(config[option] or "[]", type=list[tuple[str, int]])
    except msgspec.DecodeError as error:
        reason = f"Not a JSON list of topics and numbers ({error})"
        raise ConfigInvalid(invalid(option, config[option], reason)) from error
