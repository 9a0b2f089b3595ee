"""Why a broker does not let a client in: aiokafka itself only says that it could not connect."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from connectors.errors import Retriable

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEADLINE_S: Final = 5.0
#: OpenSSL's numbers of a certificate that is not valid yet, and of one that has expired.
_DATE_CODES: Final = frozenset({9, 10})
#: What a connection is made with; the rest of a client's arguments is its own.
CONNECTION_ARGUMENTS: Final = (
    "client_id",
    "security_protocol",
    "ssl_context",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider",
)


class BrokerLoginRefused(Retriable):
    """A broker does not let this client in, and says why: a password, a certificate, a protocol.

    Only another configuration, other users in Kafka or a rotated secret fix it; a client that has logged in before retries for
    as long as a rotation may take.

    Attributes:
        passing: whether a broker that is ending looks the same, so that waiting may help.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


async def find_refusal(client: Mapping[str, Any]) -> BrokerLoginRefused | None:
    """Return why ``client`` can't log in; None if it can or if no broker answers. Takes five seconds at most.

    Args:
        client: aiokafka client arguments.
    """
    arguments = {name: client[name] for name in CONNECTION_ARGUMENTS if name in client}
    try:
        async with asyncio.timeout(_DEADLINE_S):
            for host, port, _ in collect_hosts(client.get("bootstrap_servers", "localhost")):
                try:
                    connection = await create_conn(host, port, request_timeout_ms=int(_DEADLINE_S * 1000), **arguments)
                    try:
                        await connection.send(MetadataRequest([]))
                    finally:
                        connection.close()
                except (KafkaError, OSError) as error:
                    explanation = explain_refusal(error, client)
                    if explanation is not None:
                        passing = isinstance(error, ConnectionError | KafkaConnectionError) and not isinstance(
                            error.__cause__, ssl.SSLError
                        )
                        return BrokerLoginRefused(f"Kafka at {host}:{port} {explanation}", passing=passing)
                else:
                    return None
    except TimeoutError:
        return None
    return None


def explain_refusal(error: BaseException, client: Mapping[str, Any]) -> str | None:
    """Return what the error of a connection means and how to fix it; None if it is no error of a login. Pure."""
    protocol = client.get("security_protocol", "PLAINTEXT")
    mechanism = client.get("sasl_mechanism", "")
    if isinstance(error, SaslAuthenticationFailed):
        login = f"user {client['sasl_plain_username']!r}" if "sasl_plain_username" in client else "client"
        fix = (
            "the client's id and secret (clientId and clientSecret in sasl.jaas.config), the scope, and what the brokers "
            "expect of tokens"
            if mechanism == "OAUTHBEARER"
            else "username and password in sasl.jaas.config, and that Kafka has this user for this sasl.mechanism"
        )
        return (
            f"refuses the login of {login} with {mechanism}: {error.args[0] if error.args else 'no reason given'}. "
            f"Check {fix}"
        )
    if isinstance(error, UnsupportedSaslMechanismError):
        return f"does not take sasl.mechanism {mechanism} on this port. Set the one that this listener has, or use its port"
    if isinstance(error, IllegalSaslStateError):
        return f"expects no login on this port. Set security.protocol to {protocol.removeprefix('SASL_')}, or use another port"
    cause = error if isinstance(error, ssl.SSLError) else error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        if cause.verify_code in _DATE_CODES:
            return (
                f"shows a certificate that is not believed: {cause.verify_message}. Renew it, or that of its authority, or "
                "correct the clock of this machine"
            )
        return (
            f"shows a certificate that is not believed: {cause.verify_message}. Name the certificate of its authority in "
            "ssl.truststore.location (PEM or PKCS12); an address that is not in the certificate is let pass by an empty "
            "ssl.endpoint.identification.algorithm"
        )
    if isinstance(cause, ssl.SSLError):
        if "ALERT" in str(cause):
            return (
                f"refuses this client's certificate, or the lack of one: {cause}. Set ssl.keystore.location to a file (PEM "
                "or PKCS12) with a key and a certificate that the brokers' trust store believes and that has not expired"
            )
        return (
            f"and this client can't agree on TLS: {cause}. Check security.protocol, ssl.enabled.protocols and the port"
        )
    if isinstance(error, ConnectionResetError) and protocol.endswith("SSL"):
        return f"does not speak TLS on this port. security.protocol is {protocol}: correct it, or the port"
    if isinstance(cause, asyncio.IncompleteReadError):
        return (
            f"closes the connection. security.protocol is {protocol}: this port may be for another one (TLS, or a login), "
            "or the broker is ending"
        )
    return None
