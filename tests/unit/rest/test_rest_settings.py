"""The REST layer's options."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigInvalid
from tests.support.settings import rest_settings
from worker.rest.security.auth_settings import AuthSettings, LimitSettings
from worker.rest.security.certificates import CertificateRule
from worker.rest.server import advertised_address
from worker.rest.settings import HeaderRule, RestListener, RestSettings, header_rules


def test_defaults() -> None:
    settings = RestSettings.from_properties({})
    assert settings == RestSettings(
        listeners=(RestListener("http", "", 8083),),
        admin_listeners=None,
        advertised_host=None,
        advertised_port=None,
        advertised_scheme=None,
        origins=(),
        methods=("GET", "POST", "HEAD"),
        headers=(),
        request_timeout_s=90.0,
        health_timeout_s=10.0,
        max_body=32 << 20,
        topic_tracking=True,
        topic_reset=True,
        tls={},
        admin_tls={},
        classes=(),
        auth=AuthSettings(
            basic=False,
            bearer=False,
            certificate=False,
            users_file="",
            tokens_file="",
            java_users="",
            jwt=None,
            rules=(CertificateRule(),),
            failures_per_minute=20,
            metrics_public=False,
            session_s=28_800.0,
        ),
        limits=LimitSettings(rate=0.0, burst=20, concurrent=256, connections=1024, idle_s=30.0, body_s=30.0),
    )
    assert settings.listeners == (RestListener("http", "", 8083),)


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("http://:8083", RestListener("http", "", 8083)),
        ("HTTPS://Example.com:443", RestListener("https", "Example.com", 443)),
        ("http://[::1]:1", RestListener("http", "::1", 1)),
        ("http://127.0.0.1:0", RestListener("http", "127.0.0.1", 0)),
    ],
)
def test_listeners(text: str, listener: RestListener) -> None:
    assert RestSettings.from_properties({"listeners": text}).listeners == (listener,)
    assert RestListener.parse(str(listener)) == listener


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"listeners": ""}, "at least one URL is expected"),
        ({"listeners": "http://a:1,,http://b:2"}, "Empty URL found when parsing listeners list."),
        ({"listeners": "a:8083"}, "Listener doesn't have the right format (protocol://hostname:port)."),
        ({"listeners": "ftp://a:8083"}, 'Listener protocol must be either "http" or "https".'),
        ({"listeners": "http://a:70000"}, "is not between 0 and 65535"),
        ({"admin.listeners": "bogus"}, "Listener doesn't have the right format"),
        ({"rest.advertised.port": "0"}, "rest.advertised.port"),
        (
            {"rest.authentication": "certificate", "rest.auth.users.file": "u"},
            "needs an https listener that asks clients",
        ),
        (
            {
                "rest.authentication": "basic,certificate",
                "rest.auth.users.file": "u",
                "listeners": "https://:1,http://:2",
                "listeners.https.ssl.client.auth": "none",
                "ssl.client.auth": "required",
            },
            "needs an https listener that asks clients",
        ),
        (
            {
                "rest.authentication": "bearer",
                "rest.auth.jwt.issuer": "i",
                "rest.auth.jwt.audience": "a",
                "rest.auth.jwt.secret": "${file:/etc/millrace/secrets.properties:jwt}",
            },
            "is a reference that has no value",
        ),
        ({"rest.advertised.listener": "ftp"}, "rest.advertised.listener"),
        (
            {"response.http.headers.config": "put a:b"},
            "Invalid header config action: 'put'. Expected one of [set, add, setDate, addDate]",
        ),
        ({"response.http.headers.config": "set"}, "Invalid format of header config 'set'."),
        ({"response.http.headers.config": "set a"}, "Invalid format of header name and header value pair 'a'."),
        ({"response.http.headers.config": "set a b: c"}, "Invalid header name 'a b'."),
        ({"response.http.headers.config": "setDate a: b"}, "A date needs a number of milliseconds"),
        ({"ssl.client.auth": "maybe"}, "ssl.client.auth"),
        ({"rest.request.timeout.ms": "0"}, "Value must be at least 1"),
    ],
)
def test_what_is_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        RestSettings.from_properties(properties)
    assert text in str(caught.value)


def test_admin_listeners() -> None:
    assert RestSettings.from_properties({}).admin_listeners is None
    assert RestSettings.from_properties({"admin.listeners": ""}).admin_listeners == ()
    assert RestSettings.from_properties({"admin.listeners": "http://a:1"}).admin_listeners == (
        RestListener("http", "a", 1),
    )


def test_header_rules() -> None:
    assert header_rules(
        'set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store", ADDDATE Expires: 1000'
    ) == (
        HeaderRule("set", "X-Frame-Options", "DENY"),
        HeaderRule("add", "Cache-Control", "no-cache, no-store"),
        HeaderRule("addDate", "Expires", "1000"),
    )
    assert header_rules("  ") == ()


def test_tls_properties_with_the_prefix_replace_the_plain_ones() -> None:
    plain = {"ssl.keystore.location": "/a", "ssl.key.password": "p", "group.id": "g"}
    assert RestSettings.from_properties(plain).tls == {"ssl.keystore.location": "/a", "ssl.key.password": "p"}
    prefixed = RestSettings.from_properties({**plain, "listeners.https.ssl.keystore.location": "/b"})
    assert prefixed.tls == {"ssl.keystore.location": "/b"}
    assert prefixed.admin_tls == {"ssl.keystore.location": "/a", "ssl.key.password": "p"}


@pytest.mark.parametrize(
    ("properties", "bound", "url"),
    [
        ({}, [("http", "127.0.0.1", 8083)], "http://127.0.0.1:8083"),
        ({}, [("https", "h", 1), ("http", "h", 2)], "http://h:2"),
        ({"rest.advertised.listener": "HTTPS"}, [("http", "h", 2), ("https", "h", 1)], "https://h:1"),
        ({}, [("https", "h", 1)], "https://h:1"),
        ({"rest.advertised.host.name": "x", "rest.advertised.port": "9"}, [("http", "", 8083)], "http://x:9"),
        ({"rest.advertised.host.name": "::1"}, [("http", "", 8083)], "http://[::1]:8083"),
    ],
)
def test_the_advertised_address(properties: dict[str, str], bound: list[tuple[str, str, int]], url: str) -> None:
    settings = RestSettings.from_properties(properties)
    assert (
        advertised_address(settings, [(RestListener(scheme, host, port), port) for scheme, host, port in bound]) == url
    )


def test_an_address_of_all_interfaces_is_not_advertised() -> None:
    everywhere = "0.0.0.0"  # noqa: S104 - not bound
    url = advertised_address(rest_settings(), [(RestListener("http", everywhere, 0), 4711)])
    assert everywhere not in url
    assert url.endswith(":4711")
