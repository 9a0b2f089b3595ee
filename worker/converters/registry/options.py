"""The options that all converters with a schema registry share, and what they mean for the client."""

from __future__ import annotations

import difflib
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final, TypeVar

from connectors import tls
from connectors.errors import ConfigInvalid
from connectors.options import ConfigKey, ConfigProblem, ConfigType, Importance, Password, at_least, one_of
from worker.converters.base import TYPE_OPTION
from worker.converters.registry.auth import Credentials, OAuthSettings, basic_header, sasl_client, sasl_user
from worker.converters.registry.client import RegistrySettings, split_user_info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.options import Config, ConfigDef, Validator

_T = TypeVar("_T")
#: Package of the strategies' Java names.
STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_REGISTRY: Final = "Schema registry"
_SECURITY: Final = "Schema registry security"
_HEADER_PREFIX: Final = "request.header."
#: Options of Confluent's converters that can't change anything here: accepted, and the log says so.
NO_EFFECT: Final = frozenset(
    {
        "max.schemas.per.subject",
        "propagate.schema.tags",
        "latest.cache.size",
        "latest.cache.ttl.sec",
        "schema.reflection",
        "schema.registry.ssl.protocol",
        "schema.registry.ssl.provider",
        "schema.registry.ssl.truststore.type",
        "schema.registry.ssl.keystore.type",
        "schema.registry.http.connect.timeout.ms",
        "missing.id.query.range",
        "missing.id.cache.ttl.sec",
        "missing.version.cache.ttl.sec",
        "missing.schema.cache.ttl.sec",
        "missing.cache.size",
        "bearer.auth.sub.claim.name",
        "bearer.auth.scope.claim.name",
        "schemas.enable",
        "plugin.version",
        "schema.format",
        "specific.avro.reader",
        "avro.reflection.allow.null",
        "avro.use.logical.type.converters",
        "avro.remove.java.properties",
        "allow.optional.map.keys",
        "rule.service.loader.enable",
        "enhanced.schema.support",
    }
)
_log = logging.getLogger("worker.converters")


class RegistryOptionInvalid(ConfigInvalid):
    """Options contradict each other, or one needs another.

    Attributes:
        option: the option to fix.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


def _validate_addresses(_name: str, value: Any) -> str | None:
    for url in value or ():
        try:
            split_user_info(url)
        except ConfigInvalid as error:
            return str(error)
    return 'Missing required configuration "schema.registry.url" which has no default value.' if value == [] else None


def _validate_address(name: str, value: Any) -> str | None:
    try:
        if value:
            split_user_info(value)
    except ConfigInvalid:
        return f"Invalid value for configuration {name}: it must look like https://host/path"
    return None


def _strategy_key(name: str, subject: str) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.CLASS,
        default=STRATEGY_PACKAGE + STRATEGIES[0],
        importance=Importance.MEDIUM,
        group=_REGISTRY,
        validator=one_of(*STRATEGIES, *(STRATEGY_PACKAGE + strategy for strategy in STRATEGIES)),
        doc=f"Under which subject the schemas of {subject} are registered: TopicNameStrategy (TOPIC-key or TOPIC-value), "
        "RecordNameStrategy (the record's full name) or TopicRecordNameStrategy (both).",
    )


def _string_key(
    name: str, doc: str, *, example: str = "", aliases: tuple[str, ...] = (), validator: Validator | None = None
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.STRING,
        default=None,
        group=_SECURITY,
        doc=doc,
        example=example,
        aliases=aliases,
        validator=validator,
    )


def _secret_key(name: str, doc: str, *, aliases: tuple[str, ...] = (), example: str = "") -> ConfigKey:
    return ConfigKey(
        name=name, type=ConfigType.PASSWORD, default=None, group=_SECURITY, doc=doc, aliases=aliases, example=example
    )


REGISTRY_OPTIONS: Final = (
    TYPE_OPTION,
    ConfigKey(
        name="schema.registry.url",
        type=ConfigType.LIST,
        importance=Importance.HIGH,
        group=_REGISTRY,
        validator=_validate_addresses,
        doc="Addresses of the schema registry; the next is tried when one does not answer.",
        example="http://registry-1:8081,http://registry-2:8081",
    ),
    ConfigKey(
        name="auto.register.schemas",
        type=ConfigType.BOOLEAN,
        default=True,
        group=_REGISTRY,
        doc="Register a schema that the subject does not have. With false it must be there already.",
    ),
    ConfigKey(
        name="use.schema.id",
        type=ConfigType.INT,
        default=-1,
        group=_REGISTRY,
        doc="With auto.register.schemas=false: write with the schema of this id instead of the record's own; -1: off.",
    ),
    ConfigKey(
        name="id.compatibility.strict",
        type=ConfigType.BOOLEAN,
        default=True,
        group=_REGISTRY,
        doc="With use.schema.id: refuse records with fields that that schema lacks, instead of dropping these fields.",
    ),
    ConfigKey(
        name="use.latest.version",
        type=ConfigType.BOOLEAN,
        default=False,
        group=_REGISTRY,
        doc="With auto.register.schemas=false: write with the subject's newest schema instead of the record's own.",
    ),
    ConfigKey(
        name="latest.compatibility.strict",
        type=ConfigType.BOOLEAN,
        default=True,
        group=_REGISTRY,
        doc="With use.latest.version=true: refuse records with fields that the newest schema lacks, instead of dropping "
        "these fields.",
    ),
    ConfigKey(
        name="normalize.schemas",
        type=ConfigType.BOOLEAN,
        default=False,
        group=_REGISTRY,
        doc="Ask the registry to compare schemas in their normal form.",
    ),
    _strategy_key("key.subject.name.strategy", "keys"),
    _strategy_key("value.subject.name.strategy", "values"),
    ConfigKey(
        name="basic.auth.credentials.source",
        type=ConfigType.STRING,
        default="URL",
        group=_SECURITY,
        aliases=("schema.registry.basic.auth.credentials.source",),
        validator=one_of("URL", "USER_INFO", "SASL_INHERIT"),
        doc="Where the name and password for the registry are: in schema.registry.url, in basic.auth.user.info, or in "
        "sasl.jaas.config.",
    ),
    _secret_key(
        "basic.auth.user.info",
        "Name and password for the registry, with basic.auth.credentials.source=USER_INFO.",
        aliases=("schema.registry.basic.auth.user.info",),
        example="name:password",
    ),
    _secret_key(
        "sasl.jaas.config",
        "The line with username and password, or clientId and clientSecret, that the credential "
        "sources SASL_INHERIT and SASL_OAUTHBEARER_INHERIT take them from.",
    ),
    ConfigKey(
        name="bearer.auth.credentials.source",
        type=ConfigType.STRING,
        default="STATIC_TOKEN",
        group=_SECURITY,
        validator=one_of("STATIC_TOKEN", "OAUTHBEARER", "SASL_OAUTHBEARER_INHERIT"),
        doc="Where the bearer token for the registry is: in bearer.auth.token, or fetched from "
        "bearer.auth.issuer.endpoint.url for a client whose id and secret are in bearer.auth.client.* or in "
        "sasl.jaas.config.",
    ),
    _secret_key(
        "bearer.auth.token", "A bearer token for the registry.", aliases=("schema.registry.bearer.auth.token",)
    ),
    _string_key(
        "bearer.auth.issuer.endpoint.url",
        "The OAuth token endpoint.",
        example="https://login.example.com/oauth2/token",
        aliases=("sasl.oauthbearer.token.endpoint.url",),
        validator=_validate_address,
    ),
    _string_key("bearer.auth.client.id", "The client's id at the token endpoint."),
    _secret_key("bearer.auth.client.secret", "The client's secret at the token endpoint."),
    _string_key("bearer.auth.scope", "The scope to ask a token for."),
    _string_key("bearer.auth.logical.cluster", "Sent to the registry as header target-sr-cluster."),
    _string_key("bearer.auth.identity.pool.id", "Sent to the registry as header Confluent-Identity-Pool-Id."),
    ConfigKey(
        name="bearer.auth.cache.expiry.buffer.seconds",
        type=ConfigType.INT,
        default=300,
        validator=at_least(0),
        unit="s",
        group=_SECURITY,
        importance=Importance.LOW,
        doc="How long before its expiry a token is replaced; at most half of its life.",
    ),
    _string_key(
        "schema.registry.ssl.truststore.location",
        "A PEM or PKCS12 file with the certificates to trust for https addresses; the system's if not set.",
    ),
    _secret_key("schema.registry.ssl.truststore.password", "The password of a PKCS12 trust store."),
    _string_key(
        "schema.registry.ssl.keystore.location", "A PEM or PKCS12 file with this client's certificate and private key."
    ),
    _secret_key("schema.registry.ssl.keystore.password", "The password of a PKCS12 key store."),
    _secret_key("schema.registry.ssl.key.password", "The password of the private key in a PEM file."),
    ConfigKey(
        name="schema.registry.ssl.endpoint.identification.algorithm",
        type=ConfigType.STRING,
        default="https",
        group=_SECURITY,
        importance=Importance.LOW,
        validator=one_of("https", "", ignore_case=True),
        doc="https: the registry's certificate must be for its host name; empty: any name will do.",
    ),
    ConfigKey(
        name="proxy.host",
        type=ConfigType.STRING,
        default=None,
        group=_REGISTRY,
        doc="Host of an HTTP proxy to reach the registry through.",
    ),
    ConfigKey(name="proxy.port", type=ConfigType.INT, default=-1, group=_REGISTRY, doc="Port of the HTTP proxy."),
    ConfigKey(
        name="schema.registry.http.read.timeout.ms",
        type=ConfigType.INT,
        default=30_000,
        validator=at_least(1),
        unit="ms",
        group=_REGISTRY,
        importance=Importance.LOW,
        doc="How long one request to the registry may take.",
    ),
    ConfigKey(
        name="max.retries",
        type=ConfigType.INT,
        default=3,
        validator=at_least(0),
        group=_REGISTRY,
        importance=Importance.LOW,
        doc="How often all addresses are retried before the task's own retries take over.",
    ),
    ConfigKey(
        name="retries.wait.ms",
        type=ConfigType.INT,
        default=100,
        validator=at_least(0),
        unit="ms",
        group=_REGISTRY,
        importance=Importance.LOW,
        doc="The pause before the first retry; doubled for each later one.",
    ),
    ConfigKey(
        name="retries.max.wait.ms",
        type=ConfigType.INT,
        default=5_000,
        validator=at_least(0),
        unit="ms",
        group=_REGISTRY,
        importance=Importance.LOW,
        doc="The longest pause between retries.",
    ),
)


def cache_option(group: str) -> ConfigKey:
    """The size of the cache of compiled schemas."""
    return ConfigKey(
        name="schemas.cache.config",
        type=ConfigType.INT,
        default=1000,
        validator=at_least(1),
        unit="schemas",
        group=group,
        importance=Importance.LOW,
        aliases=("schemas.cache.size",),
        doc="How many schemas the converter keeps compiled.",
    )


def parse_options(
    definition: ConfigDef, config: Mapping[str, str], *, no_effect: frozenset[str] = frozenset()
) -> Config:
    """The parsed options of a converter with a registry. Options without effect are named in the log.

    Raises:
        ConfigInvalid: a value is wrong, or an option does not exist: it may ask for what would silently not happen.
    """
    parsed = definition.parse(config)
    ignored = sorted(name for name in config if name in NO_EFFECT or name in no_effect)
    if ignored:
        _log.warning("Options without effect here: %s", ", ".join(ignored))
    unknown = _find_unknown(definition, config, no_effect)
    if unknown:
        raise ConfigInvalid(" ".join(unknown.values()))
    return parsed


def option_problems(
    definition: ConfigDef, config: Mapping[str, str], *, no_effect: frozenset[str] = frozenset()
) -> list[ConfigProblem]:
    """``Converter.config_problems`` of a converter with a registry. Reads key stores: blocks for a moment."""
    problems = [ConfigProblem(name, message) for name, message in _find_unknown(definition, config, no_effect).items()]
    try:
        parsed = definition.parse(config)
    except ConfigInvalid:
        return problems  # the options' own declarations say what is wrong
    for part in (_read_proxy, _read_credentials, _read_tls):
        try:
            part(parsed)
        except RegistryOptionInvalid as error:
            problems.append(ConfigProblem(error.option, str(error)))
    return problems


def _find_unknown(definition: ConfigDef, config: Mapping[str, str], no_effect: frozenset[str]) -> dict[str, str]:
    """Options that don't exist, with the complaint about each."""
    known_names = {
        *definition.keys,
        *NO_EFFECT,
        *no_effect,
        *(alias for key in definition.keys.values() for alias in key.aliases),
    }
    result: dict[str, str] = {}
    for name in sorted(config):
        if name in known_names or name.startswith(_HEADER_PREFIX):
            continue
        near = difflib.get_close_matches(name, definition.keys, 1)
        result[name] = (
            f"Unknown configuration {name}: this converter has no such option. "
            f"{f'Did you mean {near[0]}?' if near else 'Remove it.'} All options are listed by "
            "GET /connector-plugins/<converter>/config."
        )
    return result


def registry_settings(parsed: Config) -> RegistrySettings:
    """How the converter's options say that the registry is reached. Reads key stores: blocks for a moment.

    Raises:
        ConfigInvalid: they contradict each other, or something is missing.
    """
    return RegistrySettings(
        urls=tuple(split_user_info(url)[0] for url in parsed["schema.registry.url"]),
        credentials=_read_credentials(parsed),
        tls=_read_tls(parsed),
        proxy=_read_proxy(parsed),
        timeout_s=parsed["schema.registry.http.read.timeout.ms"] / 1000,
        attempts=parsed["max.retries"] + 1,
        backoff_s=parsed["retries.wait.ms"] / 1000,
        backoff_max_s=parsed["retries.max.wait.ms"] / 1000,
    )


def _read_proxy(parsed: Config) -> str | None:
    if not parsed["proxy.host"]:
        return None
    if not 0 < parsed["proxy.port"] < 65536:
        raise RegistryOptionInvalid("proxy.port", "proxy.host needs proxy.port, a number from 1 to 65535")
    return f"http://{parsed['proxy.host']}:{parsed['proxy.port']}"


def _read_credentials(parsed: Config) -> Credentials:
    headers = {
        name.removeprefix(_HEADER_PREFIX): value
        for name, value in parsed.raw.items()
        if name.startswith(_HEADER_PREFIX)
    }
    if parsed["bearer.auth.logical.cluster"]:
        headers["target-sr-cluster"] = parsed["bearer.auth.logical.cluster"]
    if parsed["bearer.auth.identity.pool.id"]:
        headers["Confluent-Identity-Pool-Id"] = parsed["bearer.auth.identity.pool.id"]
    bearer = parsed["bearer.auth.credentials.source"]
    token = _password_text(parsed["bearer.auth.token"])
    basic = parsed["basic.auth.credentials.source"]
    if "bearer.auth.credentials.source" in parsed.raw and basic != "URL":
        raise RegistryOptionInvalid(
            "bearer.auth.credentials.source",
            "basic.auth.credentials.source and bearer.auth.credentials.source exclude each other: set one.",
        )
    if bearer != "STATIC_TOKEN":
        return Credentials(headers, _read_oauth(parsed, bearer))
    if token:
        return Credentials({**headers, "Authorization": f"Bearer {token}"})
    if "bearer.auth.credentials.source" in parsed.raw:
        raise RegistryOptionInvalid(
            "bearer.auth.token", "bearer.auth.credentials.source=STATIC_TOKEN needs bearer.auth.token"
        )
    user = next(
        (user_info for url in parsed["schema.registry.url"] if (user_info := split_user_info(url)[1]) is not None), None
    )
    if basic == "USER_INFO":
        name, colon, password = _password_text(parsed["basic.auth.user.info"]).partition(":")
        if not colon:
            raise RegistryOptionInvalid(
                "basic.auth.user.info",
                "Invalid value [hidden] for configuration basic.auth.user.info: write it as name:password",
            )
        user = (name, password)
    elif basic == "SASL_INHERIT":
        user = _read_inherited(sasl_user, parsed)
    return Credentials({**headers, "Authorization": basic_header(*user)} if user is not None else headers)


def _read_oauth(parsed: Config, source: str) -> OAuthSettings:
    url = parsed["bearer.auth.issuer.endpoint.url"]
    name, secret = parsed["bearer.auth.client.id"], _password_text(parsed["bearer.auth.client.secret"])
    scope = parsed["bearer.auth.scope"]
    if source == "SASL_OAUTHBEARER_INHERIT":
        name, secret, inherited = _read_inherited(sasl_client, parsed)
        scope = scope or inherited
    for option, value in (("issuer.endpoint.url", url), ("client.id", name), ("client.secret", secret)):
        if not value:
            raise RegistryOptionInvalid(
                f"bearer.auth.{option}", f"bearer.auth.credentials.source={source} needs bearer.auth.{option}"
            )
    return OAuthSettings(
        url=url,
        client_id=name,
        client_secret=secret,
        scope=scope or "",
        buffer_s=parsed["bearer.auth.cache.expiry.buffer.seconds"],
    )


def _read_inherited(read: Callable[[str], _T], parsed: Config) -> _T:
    option = "sasl.jaas.config"
    try:
        return read(_password_text(parsed[option]))
    except ConfigInvalid as error:
        raise RegistryOptionInvalid(option, str(error)) from None


def _password_text(value: Password | None) -> str:
    return value.value if value is not None else ""


def _read_tls(parsed: Config) -> ssl.SSLContext | None:
    prefix = "schema.registry.ssl."
    trusted, keystore = parsed[prefix + "truststore.location"], parsed[prefix + "keystore.location"]
    any_name = not parsed[prefix + "endpoint.identification.algorithm"]
    if trusted is None and keystore is None and not any_name:
        return None
    option = prefix + "truststore.location"
    try:
        trusted_text = (
            tls.read_certificates(trusted, _password_text(parsed[prefix + "truststore.password"]) or None)
            if trusted
            else None
        )
        context = tls.client_context(cadata=trusted_text)
        context.check_hostname = not any_name
        if keystore is not None:
            option = prefix + "keystore.location"
            identity = tls.read_identity(keystore, _password_text(parsed[prefix + "keystore.password"]) or None)
            tls.load_identity(context, identity, _password_text(parsed[prefix + "key.password"]) or None)
    except (OSError, ValueError, ssl.SSLError, ConfigInvalid) as error:
        raise RegistryOptionInvalid(option, f"{option}: it can't be used as PEM or PKCS12: {error}") from None
    return context
