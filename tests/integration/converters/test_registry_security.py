"""A protected schema registry: the real one behind a gate that checks passwords, tokens and client certificates."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from compose.local.security.certificates import Authority
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.schema import INT32, struct
from tests.support.registry_gate import RegistryGate
from worker.converters.base import create_converter
from worker.converters.registry.auth import renewal_delay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.registry import SchemaRegistry
    from worker.converters.base import Converter

ROW = struct("shop.Row", {"x": INT32})
ONCE = {"max_retries": "0"}


async def written(converter: Converter, topic: str) -> bytes | None:
    await converter.prepare(topic, ROW)
    return converter.from_connect(topic, ROW, {"x": 1})


@pytest.mark.parametrize(
    "options",
    [
        {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "kim:pa:ss"},
        {"basic_auth_credentials_source": "USER_INFO", "schema_registry_basic_auth_user_info": "kim:pa:ss"},
        {
            "basic_auth_credentials_source": "SASL_INHERIT",
            "sasl_jaas_config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="kim" password="pa:ss";',  # noqa: E501
        },
        {"schema_registry_url": "{scheme}kim:pa%3Ass@{rest}"},
        {"bearer_auth_credentials_source": "STATIC_TOKEN", "bearer_auth_token": "t0ken"},
    ],
    ids=["user info", "long name", "sasl", "url", "token"],
)
async def test_credentials_from_every_source(
    make_converter: Callable[..., Converter],
    registry: SchemaRegistry,
    unique_name: Callable[[str], str],
    options: dict[str, str],
) -> None:
    async with RegistryGate(registry.url, users={"kim": "pa:ss"}, tokens={"t0ken"}) as gate:
        scheme, rest = gate.url[:7], gate.url[7:]
        filled_options = {
            "schema_registry_url": gate.url,
            **{
                name: value.format(scheme=scheme, rest=rest) if "{" in value else value
                for name, value in options.items()
            },
        }
        assert await written(make_converter(**filled_options, **ONCE), unique_name("auth"))


@pytest.mark.parametrize(
    ("options", "users"),
    [
        ({}, {"kim": "right"}),
        ({"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "kim:wr0ng"}, {"kim": "right"}),
        ({"bearer_auth_token": "wr0ng"}, {"kim": "right"}),
    ],
    ids=["none", "password", "token"],
)
async def test_wrong_credentials_are_a_wrong_configuration(
    make_converter: Callable[..., Converter],
    registry: SchemaRegistry,
    unique_name: Callable[[str], str],
    options: dict[str, str],
    users: dict[str, str],
) -> None:
    async with RegistryGate(registry.url, users=users) as gate:
        with pytest.raises(Fatal, match="Wrong configuration: the schema registry refuses this client") as caught:
            await written(make_converter(schema_registry_url=gate.url, **options, **ONCE), unique_name("auth"))
        assert "wr0ng" not in str(caught.value)


async def test_oauth_tokens_are_fetched_used_again_and_replaced(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    async with RegistryGate(registry.url, clients={"me": "s3cret"}) as gate:
        options = {
            "schema_registry_url": gate.url,
            "bearer_auth_credentials_source": "OAUTHBEARER",
            "bearer_auth_issuer_endpoint_url": f"{gate.url}/token",
            "bearer_auth_client_id": "me",
            "bearer_auth_client_secret": "s3cret",
            "bearer_auth_scope": "schemas",
            "bearer_auth_logical_cluster": "lsrc-1",
            "bearer_auth_identity_pool_id": "pool-1",
        }
        converter = make_converter(**options, **ONCE)
        assert await written(converter, unique_name("oauth"))
        assert await written(converter, unique_name("oauth"))
        assert gate.granted == 1
        headers = gate.seen[-1][2]
        assert (headers["target-sr-cluster"], headers["Confluent-Identity-Pool-Id"]) == ("lsrc-1", "pool-1")
        gate.revoke()  # a token that the registry does not take any more is replaced at once
        assert await written(converter, unique_name("oauth"))
        assert gate.granted == 2
        gate.life_s = 0.0  # a life of nothing: each request has its own token, fetched before it
        gate.revoke()
        with pytest.raises(Fatal, match="Wrong configuration"):
            await written(converter, unique_name("oauth"))
        assert gate.granted >= 3
        inherited = {
            **options,
            "bearer_auth_credentials_source": "SASL_OAUTHBEARER_INHERIT",
            "sasl_jaas_config": 'x.OAuthBearerLoginModule required clientId="me" clientSecret="wr0ng" scope="s";',
        }
        with pytest.raises(Fatal, match=r"gives no token \(HTTP 401 invalid_client\)") as caught:
            await written(make_converter(**inherited, **ONCE), unique_name("oauth"))
        assert "wr0ng" not in str(caught.value)


def test_tokens_are_replaced_before_they_expire() -> None:
    assert renewal_delay(3600, 300) == 3300
    assert renewal_delay(100, 300) == 50


async def test_a_token_endpoint_that_is_away_is_retriable(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    converter = make_converter(
        schema_registry_url=registry.url,
        bearer_auth_credentials_source="OAUTHBEARER",
        bearer_auth_issuer_endpoint_url="http://127.0.0.1:1/token",
        bearer_auth_client_id="me",
        bearer_auth_client_secret="s",
        **ONCE,
    )
    with pytest.raises(Retriable, match="token endpoint"):
        await written(converter, unique_name("oauth"))


async def test_tls_with_a_client_certificate(
    make_converter: Callable[..., Converter],
    registry: SchemaRegistry,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    authority = Authority.make("test")
    trusted = authority.write_pem(tmp_path / "trust.pem")
    server = authority.issue("127.0.0.1").write_pem(tmp_path / "server.pem")
    certificate = authority.issue("client")
    plain, locked, store = (
        certificate.write_pem(tmp_path / "own.pem"),
        certificate.write_pem(tmp_path / "locked.pem", "k3y"),
        certificate.write_pkcs12(tmp_path / "own.p12", "st0re"),
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(trusted))
    context.load_cert_chain(server)
    context.verify_mode = ssl.CERT_REQUIRED
    async with RegistryGate(registry.url, tls=context) as gate:
        base = {"schema_registry_url": gate.url, "schema_registry_ssl_truststore_location": str(trusted), **ONCE}
        for more in (
            {"schema_registry_ssl_keystore_location": str(plain)},
            {"schema_registry_ssl_keystore_location": str(locked), "schema_registry_ssl_key_password": "k3y"},
            {"schema_registry_ssl_keystore_location": str(store), "schema_registry_ssl_keystore_password": "st0re"},
        ):
            assert await written(make_converter(**base, **more), unique_name("tls"))
        with pytest.raises(Retriable, match="does not answer"):
            await written(make_converter(**base), unique_name("tls"))  # without a certificate the connection is refused
        with pytest.raises(Retriable, match="certificate verify failed"):
            await written(make_converter(schema_registry_url=gate.url, **ONCE), unique_name("tls"))


async def test_through_a_proxy_and_with_headers(registry: SchemaRegistry, unique_name: Callable[[str], str]) -> None:
    async with RegistryGate(registry.url, forward=True) as gate:
        config = {
            "schema.registry.url": registry.url,
            "proxy.host": "127.0.0.1",
            "proxy.port": str(gate.port),
            "request.header.X-Team": "shop",
        }
        converter = create_converter("AvroConverter", config, False)
        try:
            assert await written(converter, unique_name("proxy"))
        finally:
            await converter.close()
        assert gate.seen
        assert gate.seen[-1][2]["X-Team"] == "shop"


async def test_the_next_address_takes_over_from_one_that_is_overloaded(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    async with RegistryGate(registry.url, status=503) as busy, RegistryGate(registry.url) as good:
        converter = make_converter(schema_registry_url=f"{busy.url},{good.url}", **ONCE)
        assert await written(converter, unique_name("next"))
        assert await written(converter, unique_name("next"))
        assert len(busy.seen) == 1  # later requests begin with the one that answers
        assert len(good.seen) == 2


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "schema.registry.url"),
        ({"schema.registry.url": "http://x", "basic.auth.credentials.source": "SASL_INHERIT"}, "sasl.jaas.config"),
        (
            {"schema.registry.url": "http://x", "bearer.auth.credentials.source": "OAUTHBEARER"},
            "bearer.auth.issuer.endpoint.url",
        ),
        ({"schema.registry.url": "http://x", "bearer.auth.credentials.source": "STATIC_TOKEN"}, "bearer.auth.token"),
        (
            {"schema.registry.url": "http://x", "bearer.auth.credentials.source": "CUSTOM"},
            "bearer.auth.credentials.source",
        ),
        ({"schema.registry.url": "http://x", "proxy.host": "p"}, "proxy.port"),
        (
            {"schema.registry.url": "http://x", "schema.registry.ssl.truststore.location": "/nowhere.pem"},
            "schema.registry.ssl.truststore.location",
        ),
        ({"schema.registry.url": "http://x", "rule.executors": "encrypt"}, "Unknown configuration rule.executors"),
        (
            {
                "schema.registry.url": "http://x",
                "basic.auth.credentials.source": "USER_INFO",
                "basic.auth.user.info": "a:b",
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": "t",
            },
            "exclude each other",
        ),
    ],
)
def test_options_that_can_not_work_are_refused(config: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        create_converter("AvroConverter", config, False)
    assert text in str(caught.value)


def test_options_without_effect_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    create_converter(
        "AvroConverter",
        {"schema.registry.url": "http://x", "schemas.enable": "false", "max.schemas.per.subject": "5"},
        False,
    )
    assert "Options without effect here: max.schemas.per.subject, schemas.enable" in caplog.text
