"""Options of the REST layer, and what follows from their values."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from connectors.errors import ConfigInvalid
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, between, invalid
from worker.kafka.tls import FILES
from worker.rest.security.auth_settings import AUTH_KEYS, LIMIT_KEYS, AuthSettings, LimitSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LISTENER: Final = re.compile(r"(?P<scheme>.*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?\d+)\Z", re.ASCII)
_HEADER_ACTIONS: Final = ("set", "add", "setDate", "addDate")
_HTTPS_PREFIX: Final = "listeners.https."
_ADMIN_HTTPS_PREFIX: Final = "admin.listeners.https."


@dataclass(frozen=True, slots=True)
class RestListener:
    """An address to listen on; an empty host means all interfaces, port 0 any free one."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, raw: str) -> Self:
        """A listener from ``scheme://host:port``; IPv6 hosts stand in brackets.

        Raises:
            ConfigInvalid: Kafka's text.
        """
        match = _LISTENER.match(raw.strip())
        if match is None:
            raise ConfigInvalid("Listener doesn't have the right format (protocol://hostname:port).")
        scheme, port = match["scheme"].lower(), int(match["port"])
        if scheme not in {"http", "https"}:
            raise ConfigInvalid('Listener protocol must be either "http" or "https".')
        if not 0 <= port < 1 << 16:
            raise ConfigInvalid(f"Listener {raw.strip()}: port {port} is not between 0 and 65535.")
        return cls(scheme, match["host"], port)

    def __str__(self) -> str:
        return format_address(self.scheme, self.host, self.port)


def format_address(scheme: str, host: str, port: int) -> str:
    """A URL without a path; IPv6 hosts get their brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """One rule of ``response.http.headers.config``: ``setDate`` and ``addDate`` give now plus ``value`` milliseconds."""

    action: str
    name: str
    value: str

    @classmethod
    def parse(cls, raw: str) -> Self:
        """A rule from ``action name:value``.

        Raises:
            ConfigInvalid: Kafka's text.
        """
        action, _, header = raw.strip().partition(" ")
        if not header.strip():
            raise ConfigInvalid(
                f"Invalid format of header config '{raw}'. Expected: '[action] [header name]:[header value]'"
            )
        actions = {item.lower(): item for item in _HEADER_ACTIONS}
        if action.lower() not in actions:
            raise ConfigInvalid(
                f"Invalid header config action: '{action}'. Expected one of [{', '.join(_HEADER_ACTIONS)}]"
            )
        parts = header.strip().split(":")
        if len(parts) != 2:
            raise ConfigInvalid(
                f"Invalid format of header name and header value pair '{header.strip()}'. "
                "Expected: '[header name]:[header value]'"
            )
        name, value = parts[0].strip(), parts[1].strip()
        if not name or re.search(r"\s", name):
            raise ConfigInvalid(f"Invalid header name '{name}'. The '[header name]' cannot contain whitespace")
        if action.lower().endswith("date") and not re.fullmatch(r"-?\d+", value):
            raise ConfigInvalid(f"Invalid header config '{raw}'. A date needs a number of milliseconds from now")
        return cls(actions[action.lower()], name, value)


def header_rules(raw: str) -> tuple[HeaderRule, ...]:
    """Return all rules of a comma-separated value; a rule that holds a comma is in double quotes.

    Raises:
        ConfigInvalid: with Kafka's message.
    """
    if not raw.strip():
        return ()
    return tuple(HeaderRule.parse(item) for item in next(csv.reader([raw], skipinitialspace=True)))


def _check_listeners(name: str, value: Any) -> str | None:
    if not value and name == "listeners":
        return "Invalid value for listeners, at least one URL is expected, ex: http://localhost:8080,https://localhost:8443."
    for item in value or ():
        if not item.strip():
            return f"Empty URL found when parsing {name} list."
        try:
            RestListener.parse(item)
        except ConfigInvalid as error:
            return str(error)
    return None


def _check_headers(name: str, value: Any) -> str | None:
    del name
    try:
        header_rules(value or "")
    except ConfigInvalid as error:
        return str(error)
    return None


def _check_advertised(name: str, value: Any) -> str | None:
    if value is not None and value.lower() not in {"http", "https"}:
        return invalid(name, value, "it must be http or https")
    return None


#: The options of the REST layer; the worker's own definition takes them in.
REST_KEYS: Final = (
    ConfigKey(
        name="listeners",
        type=ConfigType.LIST,
        default=["http://:8083"],
        validator=_check_listeners,
        importance=Importance.LOW,
        doc="Addresses the REST API listens on. Without a host: all interfaces; port 0 takes a free one.",
        example="http://0.0.0.0:8083,https://0.0.0.0:8443",
    ),
    ConfigKey(
        name="admin.listeners",
        type=ConfigType.LIST,
        default=None,
        validator=_check_listeners,
        importance=Importance.LOW,
        doc="Addresses of their own for /admin. Not set, /admin is served by `listeners`; empty, it is switched off.",
        example="http://127.0.0.1:8084",
    ),
    ConfigKey(
        name="rest.advertised.host.name",
        type=ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        doc="The host under which other workers reach this one; by default the listener's.",
    ),
    ConfigKey(
        name="rest.advertised.port",
        type=ConfigType.INT,
        default=None,
        importance=Importance.LOW,
        validator=lambda name, value: None if value is None else between(1, 65535)(name, value),
        doc="The port under which other workers reach this one; by default the listener's.",
    ),
    ConfigKey(
        name="rest.advertised.listener",
        type=ConfigType.STRING,
        default=None,
        validator=_check_advertised,
        importance=Importance.LOW,
        doc="Which kind of listener other workers use: http or https.",
    ),
    ConfigKey(
        name="access.control.allow.origin",
        type=ConfigType.STRING,
        default="",
        importance=Importance.LOW,
        doc="Origins whose pages may call the API from a browser: a comma-separated list, `*` for all. "
        "By default none but the API's own.",
        example="https://console.example.com",
    ),
    ConfigKey(
        name="access.control.allow.methods",
        type=ConfigType.STRING,
        default="",
        importance=Importance.LOW,
        doc="Methods that such pages may use; by default GET, POST and HEAD.",
        example="GET,POST,PUT,DELETE",
    ),
    ConfigKey(
        name="response.http.headers.config",
        type=ConfigType.STRING,
        default="",
        validator=_check_headers,
        importance=Importance.LOW,
        doc="Headers to put on every answer: `action name:value` rules, separated by commas. "
        "Actions are set, add, setDate and addDate (the value is then milliseconds from now).",
        example='set X-Frame-Options: DENY,"add Cache-Control: no-cache, no-store"',
    ),
    ConfigKey(
        name="rest.request.timeout.ms",
        type=ConfigType.LONG,
        default=90_000,
        validator=at_least(1),
        unit="ms",
        importance=Importance.LOW,
        doc="How long a request may take before it is answered with 500 (Request timed out).",
    ),
    ConfigKey(
        name="rest.health.check.timeout.ms",
        type=ConfigType.LONG,
        default=10_000,
        validator=at_least(1),
        unit="ms",
        importance=Importance.LOW,
        doc="How long /health may take before the worker counts as unhealthy.",
    ),
    ConfigKey(
        name="rest.request.max.bytes",
        type=ConfigType.LONG,
        default=32 << 20,
        validator=at_least(1024),
        unit="bytes",
        importance=Importance.LOW,
        doc="The largest request body that is read; a larger one is answered with 413.",
    ),
    ConfigKey(
        name="topic.tracking.enable",
        type=ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Whether the topics a connector has written to are kept and can be asked for.",
    ),
    ConfigKey(
        name="topic.tracking.allow.reset",
        type=ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Whether that list may be cleared through the API.",
    ),
    ConfigKey(
        name="ssl.client.auth",
        type=ConfigType.STRING,
        default="none",
        importance=Importance.LOW,
        doc="Whether an https listener asks its clients for a certificate: none, requested or required.",
        validator=lambda name, value: (
            None
            if value in {"none", "requested", "required"}
            else invalid(name, value, "String must be one of: required, requested, none")
        ),
    ),
    ConfigKey(
        name="connector.class.allow",
        type=ConfigType.LIST,
        default=[],
        importance=Importance.LOW,
        doc="Values of connector.class that may be created, changed or validated through REST, just as configurations "
        "write them; by default every installed connector. Connectors that are there already are not touched.",
        example="mysql,io.debezium.connector.mysql.MySqlConnector",
    ),
    *AUTH_KEYS,
    *LIMIT_KEYS,
)


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The REST layer's settings.

    Attributes:
        listeners: addresses to listen on.
        admin_listeners: addresses for ``/admin`` alone; empty switches it off, None serves it with the rest.
        advertised_host: host under which other workers reach this one, or None for the listener's.
        advertised_port: its port, or None for the listener's.
        advertised_scheme: which kind of listener to advertise, or None for http where there is one.
        origins: origins that may call from a browser.
        methods: methods that they may use.
        headers: headers for every answer.
        request_timeout_s: deadline of a request.
        health_timeout_s: deadline of ``/health``.
        max_body: largest request body in bytes.
        topic_tracking: whether used topics are known.
        topic_reset: whether they may be forgotten.
        tls: ``ssl.*`` properties of https listeners and of requests to other workers.
        admin_tls: those of admin listeners.
        classes: values of ``connector.class`` that may be used; empty for all.
        auth: who may call.
        limits: how much may be asked.
    """

    listeners: tuple[RestListener, ...]
    admin_listeners: tuple[RestListener, ...] | None
    advertised_host: str | None
    advertised_port: int | None
    advertised_scheme: str | None
    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[HeaderRule, ...]
    request_timeout_s: float
    health_timeout_s: float
    max_body: int
    topic_tracking: bool
    topic_reset: bool
    tls: Mapping[str, str]
    admin_tls: Mapping[str, str]
    classes: tuple[str, ...]
    auth: AuthSettings
    limits: LimitSettings

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Settings from a worker's properties (resolved: no ``${provider:...}`` references).

        Raises:
            ConfigInvalid: with every complaint.
        """
        config = ConfigDef(REST_KEYS).parse(properties)
        admin = config["admin.listeners"]
        scheme = config["rest.advertised.listener"]
        settings = cls(
            listeners=tuple(RestListener.parse(item) for item in config["listeners"]),
            admin_listeners=None if admin is None else tuple(RestListener.parse(item) for item in admin),
            advertised_host=config["rest.advertised.host.name"] or None,
            advertised_port=config["rest.advertised.port"],
            advertised_scheme=None if scheme is None else scheme.lower(),
            origins=_comma_list(config["access.control.allow.origin"]),
            methods=_comma_list(config["access.control.allow.methods"].upper()) or ("GET", "POST", "HEAD"),
            headers=header_rules(config["response.http.headers.config"]),
            request_timeout_s=config["rest.request.timeout.ms"] / 1000,
            health_timeout_s=config["rest.health.check.timeout.ms"] / 1000,
            max_body=config["rest.request.max.bytes"],
            topic_tracking=config["topic.tracking.enable"],
            topic_reset=config["topic.tracking.allow.reset"],
            tls=_tls_properties(properties, _HTTPS_PREFIX),
            admin_tls=_tls_properties(properties, _ADMIN_HTTPS_PREFIX),
            classes=tuple(config["connector.class.allow"]),
            auth=AuthSettings.from_properties(properties),
            limits=LimitSettings.from_properties(properties),
        )
        if settings.auth.certificate and not settings.asks_for_certificates:
            raise ConfigInvalid(
                "rest.authentication: certificate needs an https listener that asks clients for theirs: set "
                "ssl.client.auth=requested or required, or leave certificate out"
            )
        return settings

    @property
    def asks_for_certificates(self) -> bool:
        """Whether a client can show a certificate to some listener."""
        return any(
            listener.scheme == "https" and tls.get("ssl.client.auth", "none") != "none"
            for listeners, tls in ((self.listeners, self.tls), (self.admin_listeners or (), self.admin_tls))
            for listener in listeners
        )


def _comma_list(raw: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in raw.split(",") if item.strip())


def tls_files(tls: Mapping[str, str]) -> list[str]:
    """The files that TLS properties name."""
    return [tls[name] for name in FILES if tls.get(name)]


def _tls_properties(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """``ssl.*`` properties: those with the prefix if there is any, else the plain ones, as Kafka Connect does."""
    prefixed = {name[len(prefix) :]: value for name, value in properties.items() if name.startswith(prefix)}
    source = prefixed or properties
    return {name: value for name, value in source.items() if name.startswith("ssl.")}
