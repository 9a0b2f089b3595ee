"""Options that say who may call the REST API, and how much, and what follows from their values."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from connectors.errors import ConfigInvalid
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, invalid, one_of
from worker.rest.security.access import Grant, checked_grants
from worker.rest.security.certificates import CertificateRule, parse_rules
from worker.secrets.providers import find_references

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LOW: Final = Importance.LOW
#: Ways to say who one is; ``both`` is basic and bearer.
_METHODS: Final = ("none", "basic", "bearer", "both", "certificate")
_JAVA_EXTENSION: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
_JAVA_OPTION: Final = re.compile(r"-Djava\.security\.auth\.login\.config=(\"[^\"]+\"|'[^']+'|\S+)")
_WITH_SECRET: Final = ("HS256", "HS384", "HS512")
_WITH_KEYS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: RFC 7518: a secret is at least as long as the digest.
_SHORTEST_SECRET: Final = 32


def _check_methods(name: str, value: Any) -> str | None:
    unknown = [item for item in value or () if item.lower() not in _METHODS]
    if unknown:
        return invalid(name, unknown[0], f"it must be of {', '.join(_METHODS)}")
    if len(value or ()) > 1 and "none" in {item.lower() for item in value}:
        return invalid(name, ",".join(value), "none can't be together with others")
    return None


def _check_extensions(name: str, value: Any) -> str | None:
    for item in value or ():
        if item != _JAVA_EXTENSION:
            return invalid(
                name,
                item,
                f"a JVM extension can't run here, and what it protects would be open: remove it. Only "
                f"{_JAVA_EXTENSION} has a counterpart",
            )
    return None


def _check_algorithms(name: str, value: Any) -> str | None:
    unknown = [item for item in value or () if item not in {*_WITH_SECRET, *_WITH_KEYS}]
    return invalid(name, unknown[0], f"it must be of {', '.join((*_WITH_SECRET, *_WITH_KEYS))}") if unknown else None


#: Who may call.
AUTH_KEYS: Final = (
    ConfigKey(
        name="rest.authentication",
        type=ConfigType.LIST,
        default=["none"],
        validator=_check_methods,
        doc="How callers of the REST API say who they are: none (everybody may do everything), basic (users and "
        "passwords), bearer (tokens), both, certificate (of TLS clients), or several of these. /health asks no one.",
        example="basic,certificate",
    ),
    ConfigKey(
        name="rest.auth.users.file",
        type=ConfigType.STRING,
        default="",
        doc="Property file of users: name=hash,role. The hash is a password's (`millrace hash-password` makes the line) "
        "or the word certificate; roles are read, operate and admin, for certain connectors with a regular "
        "expression (operate:sales-.*). Read again when it changes.",
        example="/etc/millrace/users.properties",
    ),
    ConfigKey(
        name="rest.auth.tokens.file",
        type=ConfigType.STRING,
        default="",
        doc="Property file of bearer tokens: name=sha256:HEX,role, with expires=TIME behind it if it ends "
        "(`millrace hash-token` makes token and line). Read again when it changes.",
    ),
    ConfigKey(
        name="rest.auth.jwt.keys",
        type=ConfigType.STRING,
        default="",
        doc="Public keys that JSON web tokens are signed with, as a JSON web key set: a file, or an https address.",
        example="https://login.example.com/realms/data/protocol/openid-connect/certs",
    ),
    ConfigKey(
        name="rest.auth.jwt.keys.ttl.ms",
        type=ConfigType.LONG,
        default=600_000,
        validator=at_least(1000),
        unit="ms",
        importance=_LOW,
        doc="How long keys that were fetched are used before they are fetched again.",
    ),
    ConfigKey(
        name="rest.auth.jwt.secret",
        type=ConfigType.PASSWORD,
        default=None,
        doc="Secret that JSON web tokens are signed with (HS256): at least 32 characters.",
    ),
    ConfigKey(
        name="rest.auth.jwt.algorithms",
        type=ConfigType.LIST,
        default=[],
        validator=_check_algorithms,
        importance=_LOW,
        doc="Signatures that are accepted; by default RS256 and ES256 with keys, HS256 with a secret.",
    ),
    ConfigKey(
        name="rest.auth.jwt.issuer",
        type=ConfigType.STRING,
        default="",
        doc="The issuer (iss) that JSON web tokens must have; needed for them.",
        example="https://login.example.com/realms/data",
    ),
    ConfigKey(
        name="rest.auth.jwt.audience",
        type=ConfigType.LIST,
        default=[],
        doc="Audiences (aud) of which JSON web tokens must have one; needed for them.",
        example="millrace",
    ),
    ConfigKey(
        name="rest.auth.jwt.name.claim",
        type=ConfigType.STRING,
        default="sub",
        importance=_LOW,
        doc="The claim with the caller's name.",
    ),
    ConfigKey(
        name="rest.auth.jwt.roles.claim",
        type=ConfigType.STRING,
        default="roles",
        importance=_LOW,
        doc="The claim with the caller's roles: a list, or a string with blanks; dots lead into objects.",
        example="realm_access.roles",
    ),
    ConfigKey(
        name="rest.auth.jwt.roles",
        type=ConfigType.LIST,
        default=["read=read", "operate=operate", "admin=admin"],
        doc="What a value of that claim means here: value=role. Other values mean nothing.",
        example="cdc-admins=admin,cdc-sales=operate:sales-.*",
    ),
    ConfigKey(
        name="rest.auth.jwt.leeway.ms",
        type=ConfigType.LONG,
        default=30_000,
        validator=at_least(0),
        unit="ms",
        importance=_LOW,
        doc="How far the clocks of the issuer and of the worker may be apart.",
    ),
    ConfigKey(
        name="rest.auth.certificate.rules",
        type=ConfigType.STRING,
        default="DEFAULT",
        doc="How a client certificate's subject becomes the name of a user of rest.auth.users.file, written as brokers' "
        "ssl.principal.mapping.rules: RULE:pattern/replacement/[LU], and DEFAULT for the whole subject.",
        example="RULE:^CN=([^,]+).*$/$1/L,DEFAULT",
    ),
    ConfigKey(
        name="rest.auth.failures.per.minute",
        type=ConfigType.INT,
        default=20,
        validator=at_least(1),
        importance=_LOW,
        doc="Wrong passwords and tokens that one client address may send in a minute; then it is answered with 429. "
        "Callers whose password was accepted before are still served.",
    ),
    ConfigKey(
        name="rest.auth.session.ms",
        type=ConfigType.LONG,
        default=28_800_000,
        validator=at_least(1000),
        unit="ms",
        importance=_LOW,
        doc="How long a login at the console lasts.",
    ),
    ConfigKey(
        name="rest.extension.classes",
        type=ConfigType.LIST,
        default=[],
        validator=_check_extensions,
        importance=_LOW,
        doc="Kafka Connect's property. Its BasicAuthSecurityRestExtension means basic authentication with the users of "
        "the JAAS file, who may do everything; others are refused.",
    ),
    ConfigKey(
        name="java.security.auth.login.config",
        type=ConfigType.STRING,
        default="",
        importance=_LOW,
        doc="The JAAS file for that extension, with a section KafkaConnect of the PropertyFileLoginModule; by default "
        "the one that KAFKA_OPTS names (-Djava.security.auth.login.config=FILE).",
    ),
    ConfigKey(
        name="rest.metrics.access",
        type=ConfigType.STRING,
        default="read",
        validator=one_of("read", "public"),
        importance=_LOW,
        doc="Who may read /metrics where callers are asked who they are: those with the role read for "
        "the whole cluster, or everybody (public).",
    ),
)
#: How much may be asked.
LIMIT_KEYS: Final = (
    ConfigKey(
        name="rest.rate.limit.requests.per.second",
        type=ConfigType.DOUBLE,
        default=0.0,
        validator=at_least(0),
        importance=_LOW,
        doc="Requests that one user (without authentication: one client address) may send per second on "
        "average; more are answered with 429. 0: no limit. /health and other workers are not "
        "counted.",
    ),
    ConfigKey(
        name="rest.rate.limit.burst",
        type=ConfigType.INT,
        default=20,
        validator=at_least(1),
        importance=_LOW,
        doc="Requests that may come at once before the limit holds.",
    ),
    ConfigKey(
        name="rest.max.concurrent.requests",
        type=ConfigType.INT,
        default=256,
        validator=at_least(1),
        importance=_LOW,
        doc="Requests that are worked on at once; more are answered with 503. /health and other workers don't count.",
    ),
    ConfigKey(
        name="rest.max.connections",
        type=ConfigType.INT,
        default=1024,
        validator=at_least(1),
        importance=_LOW,
        doc="Connections of clients at once, for listeners and admin.listeners each; more are closed at once, over TLS "
        "after the handshake.",
    ),
    ConfigKey(
        name="rest.idle.timeout.ms",
        type=ConfigType.LONG,
        default=30_000,
        validator=at_least(100),
        unit="ms",
        importance=_LOW,
        doc="How long a client may take to shake hands, to send a request's header, or to keep a "
        "connection without a request.",
    ),
    ConfigKey(
        name="rest.body.timeout.ms",
        type=ConfigType.LONG,
        default=30_000,
        validator=at_least(100),
        unit="ms",
        importance=_LOW,
        doc="How long a client may take to send a request's body; then it is answered with 408.",
    ),
)


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """How JSON web tokens are checked; see the options of these names."""

    keys: str
    keys_ttl_s: float
    secret: str
    algorithms: tuple[str, ...]
    issuer: str
    audience: tuple[str, ...]
    name_claim: str
    roles_claim: str
    roles: Mapping[str, Grant]
    leeway_s: float


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """The settings for authentication.

    Attributes:
        basic: whether users and passwords are taken.
        bearer: whether tokens are.
        certificate: whether clients' certificates are.
        users_file: users, their password hashes and roles; "" for none.
        tokens_file: static tokens; "" for none.
        java_users: JAAS file of a Java Connect; "" for none.
        jwt: how JSON web tokens are checked, or None.
        rules: how a certificate's subject becomes a name.
        failures_per_minute: wrong credentials that an address may send.
        metrics_public: whether /metrics needs no authentication.
        session_s: how long a session of the console lasts.
    """

    basic: bool
    bearer: bool
    certificate: bool
    users_file: str
    tokens_file: str
    java_users: str
    jwt: JwtSettings | None
    rules: tuple[CertificateRule, ...]
    failures_per_minute: int
    metrics_public: bool
    session_s: float

    @property
    def on(self) -> bool:
        """Whether callers are asked who they are."""
        return self.basic or self.bearer or self.certificate

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Self:
        """Settings from a worker's properties (resolved) and the process's environment.

        Raises:
            ConfigInvalid: a value is wrong, an option of that prefix is unknown, or a method has nothing to check against.
        """
        option_names = {key.name for key in AUTH_KEYS}
        for name in properties:
            if name.startswith("rest.auth") and name not in option_names:
                raise ConfigInvalid(
                    f"{name} is no option; those of authentication are {', '.join(sorted(option_names))}"
                )
        config = ConfigDef(AUTH_KEYS).parse(properties)
        asked = {item.lower() for item in config["rest.authentication"]}
        java = ""
        if config["rest.extension.classes"]:
            java = config["java.security.auth.login.config"] or _java_option(
                os.environ if environment is None else environment
            )
            if not java:
                raise ConfigInvalid(
                    "rest.extension.classes: the JAAS file is missing: set java.security.auth.login.config, or "
                    "KAFKA_OPTS=-Djava.security.auth.login.config=FILE"
                )
        secret = config["rest.auth.jwt.secret"]
        settings = cls(
            basic=bool(asked & {"basic", "both"}) or bool(java),
            bearer=bool(asked & {"bearer", "both"}),
            certificate="certificate" in asked,
            users_file=config["rest.auth.users.file"],
            tokens_file=config["rest.auth.tokens.file"],
            java_users=java,
            jwt=_jwt_settings(config, secret.value if secret is not None else ""),
            rules=parse_rules(config["rest.auth.certificate.rules"]),
            failures_per_minute=config["rest.auth.failures.per.minute"],
            metrics_public=config["rest.metrics.access"] == "public",
            session_s=config["rest.auth.session.ms"] / 1000,
        )
        settings._check_settings()
        return settings

    def _check_settings(self) -> None:
        if (self.basic or self.certificate) and not self.users_file and not self.java_users:
            raise ConfigInvalid("rest.authentication: basic and certificate need rest.auth.users.file")
        if self.certificate and not self.users_file:
            raise ConfigInvalid(
                "rest.authentication: certificate needs rest.auth.users.file, which says who has which role"
            )
        if self.bearer and not self.tokens_file and self.jwt is None:
            raise ConfigInvalid(
                "rest.authentication: bearer needs rest.auth.tokens.file, rest.auth.jwt.keys or rest.auth.jwt.secret"
            )
        if not self.on and (self.users_file or self.tokens_file or self.jwt is not None):
            raise ConfigInvalid(
                "rest.authentication=none though users or tokens are configured: everybody could do "
                "everything. Set it to basic, bearer, both or certificate, or remove the rest.auth options"
            )


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How much may be asked; see the options of these names."""

    rate: float
    burst: int
    concurrent: int
    connections: int
    idle_s: float
    body_s: float

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Settings from a worker's properties.

        Raises:
            ConfigInvalid: a value is wrong.
        """
        config = ConfigDef(LIMIT_KEYS).parse(properties)
        return cls(
            config["rest.rate.limit.requests.per.second"],
            config["rest.rate.limit.burst"],
            config["rest.max.concurrent.requests"],
            config["rest.max.connections"],
            config["rest.idle.timeout.ms"] / 1000,
            config["rest.body.timeout.ms"] / 1000,
        )


def _java_option(environment: Mapping[str, str]) -> str:
    match = _JAVA_OPTION.search(environment.get("KAFKA_OPTS", ""))
    return "" if match is None else match[1].strip("\"'")


def _jwt_settings(config: Mapping[str, Any], secret: str) -> JwtSettings | None:
    keys: str = config["rest.auth.jwt.keys"]
    if not keys and not secret:
        return None
    if find_references(secret):
        # It stays as it is, as any reference: whoever reads or guesses its text could make tokens.
        raise ConfigInvalid(
            "rest.auth.jwt.secret is a reference that has no value: name its provider in config.providers, and "
            "see that the key is there"
        )
    if secret and len(secret) < _SHORTEST_SECRET:
        raise ConfigInvalid(f"rest.auth.jwt.secret is shorter than {_SHORTEST_SECRET} characters: it could be guessed")
    address = urlsplit(keys)
    if address.scheme == "http" and address.hostname not in {"127.0.0.1", "localhost", "::1"}:
        raise ConfigInvalid(
            "rest.auth.jwt.keys: keys must come by https: whoever can change them on the way can be anybody"
        )
    if not config["rest.auth.jwt.issuer"] or not config["rest.auth.jwt.audience"]:
        raise ConfigInvalid(
            "rest.auth.jwt.issuer and rest.auth.jwt.audience are needed for JSON web tokens: without them "
            "tokens that were made for other services would be taken"
        )
    algorithms = tuple(config["rest.auth.jwt.algorithms"]) or (
        *(("RS256", "ES256") if keys else ()),
        *(("HS256",) if secret else ()),
    )
    for algorithm in algorithms:
        if not (secret if algorithm in _WITH_SECRET else keys):
            raise ConfigInvalid(
                f"rest.auth.jwt.algorithms: {algorithm} needs rest.auth.jwt."
                f"{'secret' if algorithm in _WITH_SECRET else 'keys'}"
            )
    roles: dict[str, Grant] = {}
    for item in config["rest.auth.jwt.roles"]:
        value, sign, grant = item.partition("=")
        if not sign or not value.strip():
            raise ConfigInvalid(f"rest.auth.jwt.roles: '{item}' must be value=role")
        roles[value.strip()] = checked_grants([grant])[0]
    return JwtSettings(
        keys,
        config["rest.auth.jwt.keys.ttl.ms"] / 1000,
        secret,
        algorithms,
        config["rest.auth.jwt.issuer"],
        tuple(config["rest.auth.jwt.audience"]),
        config["rest.auth.jwt.name.claim"],
        config["rest.auth.jwt.roles.claim"],
        roles,
        config["rest.auth.jwt.leeway.ms"] / 1000,
    )
