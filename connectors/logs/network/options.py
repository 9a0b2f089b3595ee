"""Options of the inputs that listen, and their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from connectors.errors import ConfigInvalid
from connectors.options import ConfigKey, ConfigProblem, ConfigType, Importance, at_least, between, invalid, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

INPUT: Final = "input"
FROM_SYSLOG: Final = "syslog"
FROM_RELP: Final = "relp"
FROM_LUMBERJACK: Final = "lumberjack"
FROM_HTTP: Final = "http"
#: Input -> the schemes of its addresses.
SCHEMES: Final = {
    FROM_SYSLOG: ("tcp", "tls", "udp"),
    FROM_RELP: ("tcp", "tls"),
    FROM_LUMBERJACK: ("tcp", "tls"),
    FROM_HTTP: ("http", "https"),
}
LISTEN: Final = "listen"
IDENTITY: Final = "listen.tls.key.store"
IDENTITY_PASSWORD: Final = "listen.tls.key.store.password"  # noqa: S105 - the name of an option
CLIENTS: Final = "listen.tls.client.trust.store"
TOKENS: Final = "listen.tokens"
CONNECTIONS: Final = "listen.connections.max"
RATE: Final = "listen.rate.max"
REQUEST_LIMIT: Final = "listen.request.max.bytes"
LONG: Final = "listen.line.too.long"
FORMAT: Final = "listen.format"
#: The addresses of one task; made by the connector, not by users.
TASK_ADDRESSES: Final = "task.addresses"

_GROUP: Final = "Lines from the network"

NETWORK_KEYS: Final = (
    ConfigKey(
        name=LISTEN,
        type=ConfigType.LIST,
        default=[],
        group=_GROUP,
        importance=Importance.HIGH,
        doc="With input=syslog, relp, lumberjack or http: the addresses to listen on, as SCHEME://HOST:PORT. Schemes are tcp, "
        "tls and, for syslog, udp; for http they are http and https. The addresses are divided among the tasks, and each is "
        "served by the worker that runs its task.",
        example="tls://0.0.0.0:6514,udp://0.0.0.0:5514",
    ),
    ConfigKey(
        name=IDENTITY,
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        doc="For tls and https: a file with the server's key and certificates, PEM or PKCS12. It must be on every worker, and "
        "is read when a task starts.",
        example="/etc/millrace/logs.pem",
    ),
    ConfigKey(
        name=IDENTITY_PASSWORD,
        type=ConfigType.PASSWORD,
        default=None,
        group=_GROUP,
        importance=Importance.LOW,
        doc="The password of that key.",
        example="${file:/etc/millrace/secrets.properties:key}",
    ),
    ConfigKey(
        name=CLIENTS,
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        doc="For tls and https: a file with the authorities of clients, PEM or PKCS12 without a password. Only clients with a "
        "certificate that one of them has signed are let in. Not set means that clients need none.",
        example="/etc/millrace/senders.pem",
    ),
    ConfigKey(
        name=TOKENS,
        type=ConfigType.PASSWORD,
        default=None,
        group=_GROUP,
        doc="With input=http: the tokens, separated by commas, of which a request must bring one: after Bearer, Splunk or "
        "ApiKey in its header Authorization, or as the password with Basic. Not set means that everybody is let in.",
        example="${file:/etc/millrace/secrets.properties:tokens}",
    ),
    ConfigKey(
        name=CONNECTIONS,
        type=ConfigType.INT,
        default=256,
        unit="connections",
        group=_GROUP,
        validator=between(1, 100_000),
        importance=Importance.LOW,
        doc="The most connections to one address; a further one is closed at once. Each may hold one line of "
        "line.max.bytes, or one request of listen.request.max.bytes.",
    ),
    ConfigKey(
        name=RATE,
        type=ConfigType.INT,
        default=0,
        unit="lines per second",
        group=_GROUP,
        validator=at_least(0),
        importance=Importance.LOW,
        doc="How many lines a second a task takes; senders wait, and datagrams are dropped. 0 means any number.",
    ),
    ConfigKey(
        name=REQUEST_LIMIT,
        type=ConfigType.INT,
        default=16 * 1024 * 1024,
        unit="bytes",
        group=_GROUP,
        validator=between(1024, 256 * 1024 * 1024),
        importance=Importance.LOW,
        doc="The largest body of a request, and the largest Lumberjack frame, decompressed. A larger request is answered with "
        "413; the connection of a larger frame is closed.",
    ),
    ConfigKey(
        name=LONG,
        type=ConfigType.STRING,
        default="cut",
        group=_GROUP,
        validator=one_of("cut", "report"),
        importance=Importance.LOW,
        doc="What to do with a line from the network that is longer than line.max.bytes: cut gives its beginning to the rules "
        "and counts it; report makes it a bad record that holds its beginning, for errors.tolerance.",
    ),
    ConfigKey(
        name=FORMAT,
        type=ConfigType.STRING,
        default="auto",
        group=_GROUP,
        validator=one_of("auto", "plain"),
        doc="What a JSON document from lumberjack or http is: auto takes line, host, file and time out of the documents of "
        "Filebeat, Logstash and Fluent Bit, and takes any other document as a line; plain takes every document as a line.",
    ),
    ConfigKey(
        name=TASK_ADDRESSES,
        type=ConfigType.STRING,
        default=None,
        internal=True,
        doc="The addresses of one task, a JSON list; set by the connector.",
    ),
)


class ListenAddress(NamedTuple):
    """Where to listen.

    Attributes:
        scheme: how.
        host: the address of the machine.
        port: the port.
        text: as the user wrote it.
    """

    scheme: str
    host: str
    port: int
    text: str

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return self.scheme in ("tls", "https")


def parse_address(url: str) -> ListenAddress:
    """An address.

    Raises:
        ValueError: it is not SCHEME://HOST:PORT; the message says why.
    """
    parts = urlsplit(url)
    if not parts.scheme or not parts.hostname or parts.port is None or parts.path or parts.query:
        raise ValueError(f"{url!r} is not an address such as tcp://0.0.0.0:5514")
    return ListenAddress(parts.scheme, parts.hostname, parts.port, url)


def task_addresses(config: Mapping[str, Any]) -> list[ListenAddress]:
    """The addresses of one task.

    Raises:
        ConfigInvalid: ``task.addresses`` is not a JSON list of addresses.
    """
    value = config[TASK_ADDRESSES]
    try:
        return [parse_address(url) for url in msgspec.json.decode(value or "[]", type=list[str])]
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigInvalid(invalid(TASK_ADDRESSES, value, f"Not a JSON list of addresses ({error})")) from error


def network_problems(config: Mapping[str, Any], name: str) -> list[ConfigProblem]:
    """Complaints about the options of the input ``name`` that listens."""
    problems: list[ConfigProblem] = []

    def complain(option: str, reason: str) -> None:
        problems.append(ConfigProblem(option, invalid(option, config[option], reason)))

    addresses: list[ListenAddress] = []
    for url in config[LISTEN]:
        try:
            address = parse_address(url)
        except ValueError as error:
            complain(LISTEN, str(error))
            continue
        addresses.append(address)
        if address.scheme not in SCHEMES[name]:
            schemes = ", ".join(SCHEMES[name])
            complain(LISTEN, f"{url} has none of the schemes of input={name}: {schemes}")
    if not config[LISTEN]:
        complain(LISTEN, f"Give the addresses to listen on with input={name}")
    kinds = [(address.scheme == "udp", address.host, address.port) for address in addresses]
    if len(set(kinds)) < len(kinds):
        complain(LISTEN, "Two addresses are the same; give each once")
    if any(address.secure for address in addresses) and not config[IDENTITY]:
        complain(IDENTITY, "Give a file with the server's key and certificates for tls and https")
    if config[CLIENTS] and not all(address.secure for address in addresses):
        complain(CLIENTS, "It asks for certificates of clients, but an address in listen is not encrypted")
    if config[TOKENS] is not None and name != FROM_HTTP:
        complain(TOKENS, "Only input=http has tokens; use certificates of clients")
    return problems
