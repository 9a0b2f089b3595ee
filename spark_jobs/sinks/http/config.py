"""Options of the HTTP sink, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    Password,
    at_least,
    between,
    invalid,
    one_of,
)
from spark_jobs.sinks.http.body import check_body
from spark_jobs.sinks.jdbc.config import INSERT
from spark_jobs.sinks.shared.options import (
    CONTENT,
    IGNORE,
    SPEED,
    WHERE,
    WRITE,
    access_keys,
    access_of,
    access_problems,
    batch_keys,
    delete_mode_key,
    key_columns_key,
    mode_key,
    retry_keys,
    row_settings,
)
from spark_jobs.sinks.shared.templates import ROW_PARTS, Template, template_validator
from worker.converters.registry.auth import OAuthSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.shared.options import RowSettings
    from spark_jobs.steps.lookup.model import LookupAccess

PREFIX: Final = "sink.http."
#: Begins the properties that are headers of requests.
HEADER: Final = f"{PREFIX}header."
RECORD: Final = "record"
ARRAY: Final = "array"
NDJSON: Final = "ndjson"
FORMATS: Final = (RECORD, ARRAY, NDJSON)
_AUTHORIZATION: Final = "Authorization"
_ANSWERS: Final = "Answers"
_LOWEST, _HIGHEST = 300, 599

_S, _I, _LIST = ConfigType.STRING, ConfigType.INT, ConfigType.LIST
_HIGH, _LOW = Importance.HIGH, Importance.LOW
_url_template: Final = template_validator(rows=("key",), columns=True)


def _check_url(name: str, value: Any) -> str | None:
    problem = _url_template(name, value)
    if problem:
        return problem
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc or "${" in parts.netloc:
        return f"Invalid value for configuration {name}: it must begin with http://<host> or https://<host>"
    if "@" in parts.netloc:
        return (
            f"Invalid value for configuration {name}: it must not hold a login; use {PREFIX}user and {PREFIX}password"
        )
    return None


def _check_template(name: str, value: Any) -> str | None:
    problem = check_body(value or "")
    return invalid(name, value, problem) if problem else None


def _check_statuses(name: str, value: Any) -> str | None:
    wrong = [status for status in value if not status.isdecimal() or not _LOWEST <= int(status) <= _HIGHEST]
    return invalid(name, value, f"{wrong[0]} is not a status from {_LOWEST} to {_HIGHEST}") if wrong else None


def _status_key(name: str, default: list[str], doc: str) -> ConfigKey:
    return ConfigKey(
        name=f"{PREFIX}status.{name}", type=_LIST, default=default, group=_ANSWERS, validator=_check_statuses, doc=doc
    )


CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            name=f"{PREFIX}url",
            type=_S,
            importance=_HIGH,
            group=WHERE,
            validator=_check_url,
            example="https://api.example/v1/${table}/${key}",
            doc="Where requests go, by template: `${namespace}`, `${database}` and `${table}` are parts of the table's name, "
            "`${key}` is the row's key (several columns joined by `:`), `${column:<name>}` the value of a column; all are "
            "encoded for URLs. Rows with different URLs are in different requests.",
        ),
        ConfigKey(
            name=f"{PREFIX}method",
            type=_S,
            default="POST",
            group=WHERE,
            validator=one_of("POST", "PUT", "PATCH"),
            doc="The method of requests.",
        ),
        ConfigKey(
            name=f"{PREFIX}delete.method",
            type=_S,
            default="",
            group=WHERE,
            validator=one_of("", "POST", "PUT", "PATCH", "DELETE"),
            doc="The method of requests for deletes, with `sink.http.format=record`; `DELETE` has no body, and the answers 404 "
            "and 410 mean that the row is deleted. Empty: as other requests.",
        ),
        *access_keys(PREFIX, "The login of basic authentication; empty: none."),
        ConfigKey(
            name=f"{PREFIX}token",
            type=ConfigType.PASSWORD,
            default=Password(""),
            group=WHERE,
            doc="A token that every request has.",
        ),
        ConfigKey(
            name=f"{PREFIX}token.header",
            type=_S,
            default=_AUTHORIZATION,
            importance=_LOW,
            group=WHERE,
            example="X-Api-Key",
            doc="The header of the token; in `Authorization` it is `Bearer <token>`, in others the token itself.",
        ),
        ConfigKey(
            name=f"{PREFIX}oauth.url",
            type=_S,
            default="",
            group=WHERE,
            example="https://login.example/oauth2/token",
            doc="The endpoint that gives tokens (OAuth 2, client credentials); empty: no OAuth.",
        ),
        ConfigKey(
            name=f"{PREFIX}oauth.client.id",
            type=_S,
            default="",
            group=WHERE,
            doc="The client's name at the endpoint of tokens.",
        ),
        ConfigKey(
            name=f"{PREFIX}oauth.client.secret",
            type=ConfigType.PASSWORD,
            default=Password(""),
            group=WHERE,
            doc="The client's secret.",
        ),
        ConfigKey(
            name=f"{PREFIX}oauth.scope",
            type=_S,
            default="",
            importance=_LOW,
            group=WHERE,
            doc="The scope of tokens; empty: the endpoint's default.",
        ),
        ConfigKey(
            name=f"{PREFIX}format",
            type=_S,
            default=ARRAY,
            importance=_HIGH,
            group=CONTENT,
            validator=one_of(*FORMATS),
            doc="What a request holds: `record` (one row), `array` (rows as a JSON array), `ndjson` (a row per line).",
        ),
        ConfigKey(
            name=f"{PREFIX}body",
            type=_S,
            default="",
            group=CONTENT,
            validator=_check_template,
            example='{"id": ${id}, "table": ${table}, "row": ${row}}',
            doc="What a row becomes, by template; each placeholder is a JSON value: `${row}` (the columns, and `ums_id_`, "
            "`ums_ts_`, `ums_op_`), `${column:<name>}`, `${key}`, `${id}` (the same for the same change in every replay), "
            "parts of the table's name, `${topic}`, `${partition}`, `${offset}`, `${ums_id_}`, `${ums_op_}`. Empty: `${row}`.",
        ),
        ConfigKey(
            name=f"{PREFIX}idempotency.header",
            type=_S,
            default="Idempotency-Key",
            group=CONTENT,
            doc="The header with the key by which a receiver knows a request that it had: made of table, topic, partition and "
            "offset of its row; of a request with several rows a hash of these. Empty: none.",
        ),
        mode_key(PREFIX, INSERT),
        key_columns_key(PREFIX),
        delete_mode_key(PREFIX, WRITE, (WRITE, IGNORE)),
        _status_key(
            "retry",
            ["408", "425", "429", "500", "502", "503", "504"],
            "Statuses of requests (and of records, see sink.http.outcome.path) that are retried, at the earliest when "
            "`Retry-After` says.",
        ),
        _status_key(
            "refused",
            ["400", "413", "422"],
            "Statuses that mean that a row is bad: it goes to the dead letters with `errors.tolerance=all`. A refused request "
            "with several rows is cut in halves until the bad row is alone. Other statuses stop the job.",
        ),
        _status_key(
            "stale",
            [],
            "Statuses that mean that the receiver has the row, or a newer one; such as 409.",
        ),
        ConfigKey(
            name=f"{PREFIX}outcome.path",
            type=_S,
            default="",
            group=_ANSWERS,
            example="items",
            doc="Where in the answer (JSON) the array with an outcome per record is, in the order of the records: a field, "
            "`a.b` for one in another, `.` for the whole answer. Empty: the answer's status is that of all records.",
        ),
        ConfigKey(
            name=f"{PREFIX}outcome.status",
            type=_S,
            default="status",
            group=_ANSWERS,
            doc="The field of an outcome with its status: a number as of HTTP, or true and false. Empty: an outcome without "
            "sink.http.outcome.error is good.",
        ),
        ConfigKey(
            name=f"{PREFIX}outcome.error",
            type=_S,
            default="error",
            group=_ANSWERS,
            doc="The field of an outcome with the reason, for dead letters.",
        ),
        *batch_keys(PREFIX, rows=500, size=1 << 20, max_rows=100_000),
        ConfigKey(
            name=f"{PREFIX}requests",
            type=_I,
            default=4,
            group=SPEED,
            validator=between(1, 256),
            doc="How many requests a task has under way, at most. Rows of one key are never in two at a time.",
        ),
        ConfigKey(
            name=f"{PREFIX}rate.records",
            type=_I,
            default=0,
            unit="records/s",
            group=SPEED,
            validator=at_least(0),
            doc="The most records per second, of all tasks together; 0: no limit.",
        ),
        ConfigKey(
            name=f"{PREFIX}rate.requests",
            type=_I,
            default=0,
            unit="requests/s",
            group=SPEED,
            validator=at_least(0),
            doc="The most requests per second, of all tasks together; 0: no limit.",
        ),
        *retry_keys(PREFIX, retries=5, pause_ms=200),
    ]
)


@dataclass(frozen=True, slots=True)
class Answers:
    """How answers are read; see the options."""

    retry: frozenset[int]
    refused: frozenset[int]
    stale: frozenset[int]
    path: str
    status: str
    error: str


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The options, parsed; picklable, its text holds no secret. Names as in ``CONFIG_DEF``."""

    url: Template
    method: str
    delete_method: str
    access: LookupAccess = field(repr=False)
    token: str = field(repr=False)
    token_header: str
    oauth: OAuthSettings | None
    headers: tuple[tuple[str, Template], ...] = field(repr=False)
    format: str
    body: str
    idempotency_header: str
    answers: Answers
    requests: int
    rate_records: float
    rate_requests: float
    rows: RowSettings

    @property
    def where(self) -> str:
        """The service, for messages."""
        return self.access.address


def parse_settings(config: Mapping[str, Any], headers: Mapping[str, str]) -> HttpSettings:
    """The parsed options. Pure.

    Args:
        config: parsed values.
        headers: the properties that begin with ``HEADER``, without it.
    """

    def get(name: str) -> Any:
        return config[f"{PREFIX}{name}"]

    parts = urlsplit(get("url"))
    oauth = None
    if get("oauth.url"):
        oauth = OAuthSettings(
            url=get("oauth.url"),
            client_id=get("oauth.client.id"),
            client_secret=get("oauth.client.secret").value,
            scope=get("oauth.scope"),
            url_option=f"{PREFIX}oauth.url",
            client_options=f"{PREFIX}oauth.client.id, {PREFIX}oauth.client.secret and {PREFIX}oauth.scope",
        )
    return HttpSettings(
        url=Template(get("url")),
        method=get("method"),
        delete_method=get("delete.method"),
        access=access_of(config, PREFIX, f"{parts.scheme}://{parts.netloc}"),
        token=get("token").value,
        token_header=get("token.header"),
        oauth=oauth,
        headers=tuple((name, Template(template)) for name, template in sorted(headers.items())),
        format=get("format"),
        body=get("body") or "${row}",
        idempotency_header=get("idempotency.header"),
        answers=Answers(
            retry=frozenset(map(int, get("status.retry"))),
            refused=frozenset(map(int, get("status.refused"))),
            stale=frozenset(map(int, get("status.stale"))),
            path=get("outcome.path"),
            status=get("outcome.status"),
            error=get("outcome.error"),
        ),
        requests=get("requests"),
        rate_records=get("rate.records") / get("connections"),
        rate_requests=get("rate.requests") / get("connections"),
        rows=row_settings(config, PREFIX, ordered=True),
    )


def check_options(config: Mapping[str, Any], headers: Mapping[str, str]) -> list[str]:
    """Options that don't go together, as ``<option>: <text>``. Pure."""
    problems = access_problems(config, PREFIX)
    chosen = parse_settings(config, headers)
    logins = {"user": chosen.access.user, "token": chosen.token, "oauth.url": chosen.oauth}
    if chosen.token_header.lower() != _AUTHORIZATION.lower():
        del logins["token"]
    chosen_logins = [name for name, value in logins.items() if value]
    if len(chosen_logins) > 1:
        both = " and ".join(f"{PREFIX}{name}" for name in chosen_logins)
        problems.append(f"{PREFIX}{chosen_logins[-1]}: a request has one Authorization, and {both} are set")
    if chosen.oauth and not (chosen.oauth.client_id and chosen.oauth.client_secret):
        problems.append(f"{PREFIX}oauth.client.id: {PREFIX}oauth.url needs the client's name and secret")
    if chosen.delete_method and chosen.format != RECORD:
        problems.append(f"{PREFIX}delete.method: a request with several rows has one method; use {PREFIX}format=record")
    check = template_validator(rows=ROW_PARTS, columns=True)
    for name, template in chosen.headers:
        complaint = check(f"{HEADER}{name}", template.text)
        if complaint:
            problems.append(f"{HEADER}{name}: {complaint}")
    twice = chosen.answers.retry & chosen.answers.refused | chosen.answers.stale & (
        chosen.answers.retry | chosen.answers.refused
    )
    if twice:
        problems.append(
            f"{PREFIX}status.refused: {min(twice)} is in two of status.retry, status.refused and status.stale"
        )
    return problems
