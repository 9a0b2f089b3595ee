"""The options of a lookup, and what they say together. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from connectors.errors import ConfigInvalid
from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    Password,
    at_least,
    between,
    non_empty,
    one_of,
)
from spark_jobs.sinks.jdbc.address import parse_url
from spark_jobs.sinks.jdbc.config import SSL_MODES, Login
from spark_jobs.steps.contract import TABLES
from spark_jobs.steps.lookup import redis_client, topic
from spark_jobs.steps.lookup.model import (
    DEAD_LETTER,
    DROP,
    MISSES,
    NULL,
    PLACEHOLDER,
    LookupAccess,
    Spec,
    parse_columns,
    parse_on,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Begins the properties that are headers of requests over HTTP.
HEADER: Final = "header."
_SCHEMES: Final = {
    "cassandra": "cassandra",
    "scylla": "cassandra",
    "redis": "redis",
    "rediss": "redis",
    "http": "http",
    "https": "http",
}
_DATABASES: Final = ("postgresql", "mariadb", "mysql", "cassandra")
_CQL_PORT: Final = 9042
_HOST: Final = re.compile(r"(?P<host>[^:\[\]]+|\[[^\]]+\])(?::(?P<port>\d+))?\Z")
_LEVELS: Final = ("ONE", "LOCAL_ONE", "LOCAL_QUORUM", "QUORUM", "TWO", "THREE", "ALL", "EACH_QUORUM")
_SHAPES: Final = (
    "one of jdbc:postgresql://host:port/database, jdbc:mariadb://..., jdbc:mysql://..., cassandra://host:port,host:port, "
    "scylla://..., redis://host:port/0, rediss://..., http://..., https://..."
)

CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            name="url",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            validator=lambda name, value: None if value is None else non_empty(name, value),
            example="jdbc:postgresql://db.example:5432/crm",
            doc="Where rows are looked up: `jdbc:postgresql://host:port/database`, `jdbc:mariadb://...`, `jdbc:mysql://...`, "
            "`cassandra://host:port,host:port`, `scylla://...`, `redis://host:port/0`, `rediss://...`, `http://...` or "
            "`https://...`. A URL of HTTP with placeholders, such as `https://crm/customers/${id}`, is asked once per key by "
            "GET; one without gets the keys of a request as a JSON array of objects by POST, and answers with an array of "
            "objects that hold the key's fields, too.",
        ),
        ConfigKey(
            name="topic",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            example="crm.shop.customers",
            doc="A compacted topic to look up rows in, instead of `url`. Every Python worker keeps its rows in memory, and "
            "reads the topic's new changes before each batch.",
        ),
        ConfigKey(
            name="topic.format",
            type=ConfigType.STRING,
            default=topic.DEBEZIUM,
            validator=one_of(*topic.FORMS),
            doc="How the topic's values are written: `debezium` (change events in JSON, with or without schemas) or `plain` "
            "(JSON objects; a record without a value deletes the row of its key).",
        ),
        ConfigKey(
            name="topic.rows.max",
            type=ConfigType.INT,
            default=1_000_000,
            validator=at_least(1),
            doc="The most rows of a topic that a Python worker keeps; more stop the job.",
        ),
        ConfigKey(
            name="table",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            example="public.customers",
            doc="The table of a database: `table`, `schema.table`, of Cassandra and Scylla `keyspace.table`. A view will do.",
        ),
        ConfigKey(
            name="on",
            type=ConfigType.LIST,
            importance=Importance.HIGH,
            validator=lambda name, value: None if value else f"{name} names no column",
            example="customer_id = id",
            doc="The key: `<column of the table> = <column where it is looked up>`, or one name for both; several are "
            "separated by commas. There may be one row at most for a key.",
        ),
        ConfigKey(
            name="columns",
            type=ConfigType.STRING,
            importance=Importance.HIGH,
            validator=non_empty,
            example="name string AS customer, address.city string AS city, discount decimal(5,2)",
            doc="The columns to add: `<column> <type> [AS <name>]`, separated by commas. Types: string, boolean, tinyint, "
            "smallint, int, bigint, float, double, decimal(p,s), date, timestamp, binary. In JSON `a.b` is the field `b` of "
            "`a`.",
        ),
        ConfigKey(
            name="miss",
            type=ConfigType.STRING,
            default=NULL,
            importance=Importance.HIGH,
            validator=one_of(*MISSES),
            doc="What becomes of an insert or update whose key is not found. `null`: the columns are null. `drop`: an insert "
            "is left out, an update becomes a delete. `retry`: the task asks again until the key is there or "
            "`miss.retry.timeout.ms` is over. `dead-letter`: the record is a bad one, so `errors.tolerance` says what follows.",
        ),
        ConfigKey(
            name="miss.retry.timeout.ms",
            type=ConfigType.INT,
            default=60_000,
            unit="ms",
            validator=at_least(0),
            doc="For how long `miss=retry` waits for a key. The batch waits with it.",
        ),
        ConfigKey(
            name="miss.retry.then",
            type=ConfigType.STRING,
            default=DEAD_LETTER,
            validator=one_of(NULL, DROP, DEAD_LETTER),
            doc="What becomes of a row whose key was not found in that time; values as for `miss`.",
        ),
        ConfigKey(
            name="cache.rows",
            type=ConfigType.INT,
            default=100_000,
            validator=at_least(0),
            doc="The most keys that each Python worker keeps in memory with their values; those that were not used longest go. "
            "0: every batch asks for all of its keys.",
        ),
        ConfigKey(
            name="cache.age.ms",
            type=ConfigType.INT,
            default=300_000,
            unit="ms",
            validator=at_least(0),
            doc="How old the values of a key may be: a change of the looked-up row may stay unseen for so long.",
        ),
        ConfigKey(
            name="cache.misses.age.ms",
            type=ConfigType.INT,
            default=10_000,
            unit="ms",
            validator=at_least(0),
            doc="For how long it counts that a key was not found. 0: misses are not kept.",
        ),
        ConfigKey(
            name="batch.keys",
            type=ConfigType.INT,
            default=500,
            validator=between(1, 10_000),
            doc="The most keys in one request (databases with JDBC URLs, Redis, HTTP by POST).",
        ),
        ConfigKey(
            name="requests",
            type=ConfigType.INT,
            default=4,
            validator=between(1, 64),
            doc="Requests that each task makes at a time, each on a connection of its own; for Cassandra and Scylla 16 times "
            "as many queries on shared connections.",
        ),
        ConfigKey(
            name="user",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            doc="The login; of HTTP for Basic authentication.",
        ),
        ConfigKey(
            name="password",
            type=ConfigType.PASSWORD,
            default=Password(""),
            importance=Importance.HIGH,
            example="${env:CRM_PASSWORD}",
            doc="The login's password.",
        ),
        ConfigKey(
            name="ssl.mode",
            type=ConfigType.STRING,
            default="prefer",
            validator=one_of(*SSL_MODES),
            doc="TLS, by libpq's names: `disable`; `prefer` (PostgreSQL: if the server has it; `https` and `rediss`: as "
            "`verify-full`; others: none); `require` (encrypted, the server is not verified); `verify-ca`; `verify-full` (its "
            "name too).",
        ),
        ConfigKey(
            name="ssl.root.cert",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            doc="File with the authorities that verify the server, on every machine that runs tasks.",
        ),
        ConfigKey(
            name="ssl.cert",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            doc="File with the client's certificate, on every machine that runs tasks.",
        ),
        ConfigKey(
            name="ssl.key",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            doc="File with the key of the client's certificate.",
        ),
        ConfigKey(
            name="timeout.ms",
            type=ConfigType.INT,
            default=10_000,
            unit="ms",
            validator=at_least(100),
            doc="How long a connection may take to be made, and a request to be answered.",
        ),
        ConfigKey(
            name="retries",
            type=ConfigType.INT,
            default=3,
            validator=at_least(0),
            doc="How often a request that fails for a passing reason is repeated before the batch fails, which the job then "
            "repeats (`errors.retry.timeout.ms`).",
        ),
        ConfigKey(
            name="retry.backoff.ms",
            type=ConfigType.INT,
            default=100,
            unit="ms",
            validator=at_least(1),
            doc="The pause before the first retry, and before the first look for a key that is missing; each further one is "
            "twice as long, up to 2 s.",
        ),
        ConfigKey(
            name="redis.key",
            type=ConfigType.STRING,
            default=None,
            example="customer:${id}",
            doc="The key of Redis; `${<column>}` is a column that `on` names on its right side.",
        ),
        ConfigKey(
            name="redis.value",
            type=ConfigType.STRING,
            default=redis_client.HASH,
            validator=one_of(*redis_client.FORMS),
            doc="What the value is: `hash` (columns are its fields), `json` (a string that holds an object), or `string` (one "
            "column, whose name there does not matter).",
        ),
        ConfigKey(
            name="consistency",
            type=ConfigType.STRING,
            default="LOCAL_ONE",
            validator=one_of(*_LEVELS),
            doc="The consistency level of queries in Cassandra and Scylla.",
        ),
        TABLES,
    ]
)


def system_of(options: Mapping[str, Any]) -> str:
    """Where rows are looked up; empty if the URL is of no known kind."""
    if options["topic"]:
        return "topic"
    url = options["url"] or ""
    if url.startswith("jdbc:"):
        kind = url.split(":")[1]
        return kind if kind in _DATABASES else ""
    return _SCHEMES.get(url.partition("://")[0].lower(), "")


def find_problems(options: Mapping[str, Any]) -> list[str]:
    """Return the complaints about the options of a step, each as ``<option>: <text>``. Pure."""
    messages: list[str] = []

    def complain(option: str, problem: str) -> None:
        messages.append(f"{option}: {problem}")

    def attempt(option: str, parse: Callable[[], Any]) -> Any:
        result, complaints = _try_parse(option, parse)
        messages.extend(complaints)
        return result

    pairs = attempt("on", lambda: parse_on(options["on"])) or []
    columns = attempt("columns", lambda: parse_columns(options["columns"])) or []
    if bool(options["url"]) == bool(options["topic"]):
        complain("url", "set url or topic, one of them")
        return messages
    system = system_of(options)
    if not system:
        complain("url", f"`{_show_url(options['url'])}` is not a known address; a URL is {_SHAPES}")
        return messages
    if options["url"] and urlsplit(options["url"]).username is not None:
        complain("url", "the URL must not hold a login: use user and password")
        return messages
    if system in _DATABASES and not options["table"]:
        complain("table", f"a lookup in {system} needs the name of the table")
    if system not in _DATABASES and options["table"]:
        complain("table", f"a lookup in {system} has no table: remove it")
    key_columns = [there for _, there in pairs]
    if system == "redis":
        messages += _redis_problems(options, key_columns, len(columns))
    elif system == "http":
        messages += _http_problems(options["url"], key_columns)
    elif system == "cassandra":
        attempt("url", lambda: _parse_hosts(options["url"]))
    elif system in _DATABASES:
        attempt("url", lambda: parse_url(options["url"]))
        if not options["user"]:
            complain("user", f"a lookup in {system} needs a login")
        if options["ssl.mode"] in ("verify-ca", "verify-full") and not options["ssl.root.cert"]:
            complain("ssl.root.cert", f"ssl.mode={options['ssl.mode']} needs the file of authorities")
    if bool(options["ssl.cert"]) != bool(options["ssl.key"]):
        complain("ssl.cert", "a client's certificate needs its key (ssl.key), and the other way round")
    return messages


def _try_parse(option: str, parse: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what ``parse`` gives, and its complaint."""
    try:
        return parse(), []
    except (ValueError, ConfigInvalid) as error:
        return None, [f"{option}: {str(error).replace('sink.jdbc.', '')}"]


def _redis_problems(options: Mapping[str, Any], key_columns: list[str], columns: int) -> list[str]:
    key = options["redis.key"] or ""
    if not PLACEHOLDER.search(key):
        return [
            "redis.key: a lookup in Redis needs the key as a template, such as customer:${"
            + "".join(key_columns[:1])
            + "}"
        ]
    messages = [f"redis.key: {problem}" for problem in _check_placeholders(key, key_columns)]
    if options["redis.value"] == redis_client.STRING and columns > 1:
        messages.append("columns: redis.value=string gives one column: set redis.value=hash or json for several")
    return messages


def _http_problems(url: str, key_columns: list[str]) -> list[str]:
    parts = urlsplit(url)
    if PLACEHOLDER.search(parts.netloc) or not parts.hostname:
        return ["url: the host must be written out; placeholders may be in the path and the query"]
    return [f"url: {problem}" for problem in _check_placeholders(url, key_columns)] if PLACEHOLDER.search(url) else []


def _check_placeholders(template: str, key_columns: list[str]) -> list[str]:
    names = PLACEHOLDER.findall(template)
    return [
        f"${{{name}}} is no column of `on`, which has {', '.join(key_columns)}"
        for name in names
        if name not in key_columns
    ] + [
        f"the column {name} of `on` is not in it: rows that differ in it alone would get one answer"
        for name in key_columns
        if name not in names
    ]


def _show_url(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)[:100]


def _parse_hosts(url: str) -> tuple[tuple[str, int], ...]:
    hosts = []
    for item in url.partition("://")[2].strip("/").split(","):
        match = _HOST.match(item.strip())
        if match is None:
            raise ValueError(f"`{item}` is not host:port; the keyspace is written in table (keyspace.table)")
        hosts.append((match["host"].strip("[]"), int(match["port"] or _CQL_PORT)))
    return tuple(hosts)


def spec_of(step: str, options: Mapping[str, Any], raw: Mapping[str, str], client: Mapping[str, Any]) -> Spec:
    """The lookup that checked options describe.

    Args:
        step: the name of the step.
        options: parsed values.
        raw: all properties of the step, from which headers are taken.
        client: the configuration of a Kafka consumer, for a topic.
    """
    system = system_of(options)
    url = options["url"] or ""
    timeout_s = options["timeout.ms"] / 1000
    user, password = options["user"] or "", options["password"].value
    address = url.partition("://")[2].partition("/")[0]
    ssl = {
        "ssl_mode": options["ssl.mode"],
        "ssl_root_cert": options["ssl.root.cert"],
        "ssl_cert": options["ssl.cert"],
        "ssl_key": options["ssl.key"],
    }
    jdbc = None
    if url.startswith("jdbc:"):
        parsed = parse_url(url)
        jdbc = Login(
            parsed,
            user,
            password,
            **ssl,
            connect_timeout_ms=options["timeout.ms"],
            statement_timeout_ms=options["timeout.ms"],
        )
        address = parsed.text
    return Spec(
        step=step,
        system=system,
        on=tuple(there for _, there in parse_on(options["on"])),
        columns=tuple(parse_columns(options["columns"])),
        login=LookupAccess(address, user, password, **ssl, timeout_s=timeout_s, jdbc=jdbc),
        table=options["table"] or "",
        url=url if system in ("redis", "http") else "",
        hosts=_parse_hosts(url) if system == "cassandra" else (),
        key=options["redis.key"] or "",
        form=options["topic.format"] if system == "topic" else options["redis.value"],
        headers=tuple(
            (name.removeprefix(HEADER), value) for name, value in sorted(raw.items()) if name.startswith(HEADER)
        ),
        consistency=options["consistency"],
        topic=options["topic"] or "",
        client=tuple(sorted(client.items())) if system == "topic" else (),
        rows_max=options["topic.rows.max"],
        miss=options["miss"],
        miss_timeout_s=options["miss.retry.timeout.ms"] / 1000,
        miss_then=options["miss.retry.then"],
        cache_rows=options["cache.rows"],
        cache_age_s=options["cache.age.ms"] / 1000,
        cache_miss_age_s=options["cache.misses.age.ms"] / 1000,
        batch_keys=options["batch.keys"],
        requests=options["requests"],
        retries=options["retries"],
        backoff_s=options["retry.backoff.ms"] / 1000,
    )
