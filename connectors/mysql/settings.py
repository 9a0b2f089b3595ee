"""How to reach a server: addresses, credentials, TLS, time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from connectors.cql.tls import TlsSettings as Stores
from connectors.cql.tls import ssl_context as stores_context
from connectors.errors import ConfigInvalid
from connectors.options import Password  # noqa: TC001 - msgspec reads the annotation at run time

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT: Final = 3306

#: As Debezium: ``preferred`` encrypts where the server can, without checking whom it talks to; ``required`` refuses a server
#: that can't; ``verify_ca`` also checks the server's certificate, ``verify_identity`` also its name.
SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to encrypt; no ``TlsSettings`` at all means not to.

    Attributes:
        mode: see ``SslMode``.
        truststore: file with the certificates that are believed (PEM or PKCS12), for the two modes that verify; None: the
            system's.
        truststore_password: of a PKCS12 file.
        keystore: file with our key and certificate (PEM or PKCS12) where the server wants one.
        keystore_password: of that file.
    """

    mode: SslMode = "preferred"
    truststore: str | None = None
    truststore_password: Password | None = None
    keystore: str | None = None
    keystore_password: Password | None = None

    @property
    def required(self) -> bool:
        """Whether a server without TLS is refused."""
        return self.mode not in {"disabled", "preferred"}


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One server, or several that are copies of each other.

    Attributes:
        host: a name or an address, or several with commas between, each with its own ``:port`` if it has one.
        port: for the hosts that name none.
        user: who logs in.
        password: the password.
        server_id: our number among the readers of the server's binlog; 0: one from 5400 to 6400 is drawn at each connection.
        tls: how to encrypt; None: not.
        connect_timeout_s: until a connection must stand, for each host, logging in included.
        keepalive: whether the operating system probes a quiet connection.
        keepalive_s: after how many quiet seconds it does.
        heartbeat_s: how often a quiet server says that it is there, on the binlog connection.
        silence_s: how long it may say nothing before the connection counts as lost; at least three heartbeats are awaited.
        net_write_timeout_s: how long the server waits for a reader that doesn't take data, before it gives the connection up.
        net_read_timeout_s: the server's ``net_read_timeout``, for queries; None: as the server has it.
        statements: run at the start of each connection for queries (not on the binlog's), in order.
        time_zone: of the connections for queries.
        verify_checksums: whether the binlog's CRC32 is verified, where there is one.
        name: what the server's process list shows.
    """

    host: str
    port: int = DEFAULT_PORT
    user: str = ""
    password: Password | None = None
    server_id: int = 0
    tls: TlsSettings | None = None
    connect_timeout_s: float = 30.0
    keepalive: bool = True
    keepalive_s: float = 60.0
    heartbeat_s: float = 10.0
    silence_s: float = 30.0
    net_write_timeout_s: int = 3600
    net_read_timeout_s: int | None = None
    statements: tuple[str, ...] = ()
    time_zone: str = "+00:00"
    verify_checksums: bool = True
    name: str = "millrace"

    @property
    def secret(self) -> str:
        """The password's text."""
        return self.password.value if self.password is not None else ""

    def addresses(self) -> tuple[Address, ...]:
        """The servers in the order in which they are tried.

        Raises:
            ConfigInvalid: a port is no number, or there is no host.
        """
        found = tuple(parse_address(part, self.port) for part in self.host.split(",") if part.strip())
        if not found:
            raise ConfigInvalid("database.hostname names no host")
        return found


def parse_address(text: str, port: int) -> Address:
    """``host``, ``host:port``, ``[::1]:port`` or ``::1`` as an address.

    Raises:
        ConfigInvalid: the port is no number from 1 to 65535.
    """
    text = text.strip()
    host, own = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        own = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, own = text.partition(":")
    if not own:
        return Address(host, port)
    if not own.isascii() or not own.isdigit() or not 0 < int(own) < 1 << 16:
        raise ConfigInvalid(
            f"database.hostname: {own!r} in {text!r} is no port; write HOST:PORT, a port from 1 to 65535"
        )
    return Address(host, int(own))


def ssl_context(tls: TlsSettings | None) -> ssl.SSLContext | None:
    """The context for ``tls``, or None for no encryption. Reads files: blocks.

    Raises:
        ConfigInvalid: a file can't be read or used.
    """
    import ssl

    if tls is None or tls.mode == "disabled":
        return None
    verify = tls.mode in {"verify_ca", "verify_identity"}
    context = stores_context(
        Stores(
            truststore=tls.truststore if verify else None,
            truststore_password=tls.truststore_password,
            keystore=tls.keystore,
            keystore_password=tls.keystore_password,
            check_hostname=tls.mode == "verify_identity",
        )
    )
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    return context
