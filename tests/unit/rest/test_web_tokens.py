"""Keys of JSON web tokens by themselves: which are taken, where from, and for how long; and what roles a claim stands for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import jwt
import orjson
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from connectors.errors import ConfigInvalid
from worker.rest.security import web_tokens
from worker.rest.security.access import Grant, parse_grants
from worker.rest.security.auth_settings import JwtSettings
from worker.rest.security.web_tokens import JwtVerifier, NotAccepted, granted_roles, parse_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
ROLES = {"viewer": Grant.parse("read"), "chief": Grant.parse("admin")}


def token(**more: Any) -> str:
    claims = {"iss": "i", "aud": "a", "sub": "ada", "exp": time.time() + 60, "roles": ["viewer"], **more}
    return jwt.encode(claims, KEY, "ES256", {"kid": "k"})


def verifier(keys: str, ttl_s: float = 600.0) -> JwtVerifier:
    return JwtVerifier(JwtSettings(keys, ttl_s, "", ("ES256",), "i", ("a",), "sub", "roles", ROLES, 0.0))


class Certs:
    """A server of keys whose answers the test sets."""

    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        self.answer: Callable[[Any], web.Response] = web.json_response

    async def serve(self, _: web.Request) -> web.StreamResponse:
        self.asked += 1
        return self.answer({"keys": [{**PUBLIC, "kid": "k"}]})


@pytest.fixture
async def certs() -> AsyncIterator[Certs]:
    server = Certs()
    app = web.Application()
    app.router.add_get("/certs", server.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/certs"
    yield server
    await runner.cleanup()


def _redirected(body: Any) -> web.Response:
    del body
    return web.Response(
        status=302, headers={"Location": "/elsewhere"}, body=orjson.dumps({"keys": [{**PUBLIC, "kid": "k"}]})
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda body: web.json_response(body, status=503), "the answer's status is 503"),
        (_redirected, "the answer's status is 302"),
        (lambda body: web.json_response({**body, "more": "x" * (1 << 20)}), "larger than 1048576 bytes"),
        (lambda body: web.json_response([body]), "a JSON web key set is expected"),
    ],
)
async def test_answers_that_hold_no_keys(
    certs: Certs, answer: Callable[[Any], web.Response], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    certs.answer = answer
    jwt_verifier = verifier(certs.url)
    with pytest.raises(NotAccepted, match=r"fits no known key|could not be fetched"):
        await jwt_verifier.verify(token())
    assert reason in caplog.text
    await jwt_verifier.close()


async def test_keys_are_fetched_again_and_the_last_ones_hold_for_a_day(
    certs: Certs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_tokens, "_AGAIN_S", -1.0)
    jwt_verifier = verifier(certs.url, ttl_s=0.0)
    for count in (1, 2):
        assert (await jwt_verifier.verify(token())).name == "ada"
        assert certs.asked == count
    certs.answer = lambda body: web.json_response(body, status=500)
    assert (await jwt_verifier.verify(token())).name == "ada"
    monkeypatch.setattr(web_tokens, "_STALE_S", -1.0)
    with pytest.raises(NotAccepted, match="could not be fetched for a day"):
        await jwt_verifier.verify(token())
    await jwt_verifier.close()


async def test_names_that_are_none(certs: Certs) -> None:
    jwt_verifier = verifier(certs.url)
    assert (await jwt_verifier.verify(token(sub="x" * 256))).name == "x" * 256
    for name in ("x" * 257, "", "a\tb", ["ada"]):
        with pytest.raises(NotAccepted):
            await jwt_verifier.verify(token(sub=name))
    await jwt_verifier.close()


def test_keys_for_signatures_only() -> None:
    keys = parse_keys(
        orjson.dumps(
            {
                "keys": [
                    {**PUBLIC, "kid": "sig", "use": "sig"},
                    {**PUBLIC, "kid": "any"},
                    {**PUBLIC, "kid": "enc", "use": "enc"},
                    PUBLIC,
                    {"kty": "oct", "k": "AAAA", "kid": "weak"},
                ]
            }
        )
    )
    assert set(keys) == {"sig", "any", None}
    for text in (
        b"",
        b"[]",
        b"{}",
        b'{"keys": 1}',
        b'{"keys": [1]}',
        b'{"keys": []}',
        orjson.dumps({"keys": [{**PUBLIC, "use": "enc"}]}),
    ):
        with pytest.raises(ConfigInvalid, match=r"rest\.auth\.jwt\.keys"):
            parse_keys(text)


@pytest.mark.parametrize(
    ("claims", "path", "roles"),
    [
        ({"roles": ["viewer", "chief", "viewer", "other", 1]}, "roles", "read,admin"),
        ({"scope": "x chief"}, "scope", "admin"),
        ({"realm": {"access": {"roles": ["viewer"]}}}, "realm.access.roles", "read"),
        ({"https://x.org/roles": ["chief"]}, "https://x.org/roles", "admin"),
        ({"a.b": ["viewer"], "a": {"b": ["chief"]}}, "a.b", "read"),
        ({"a": ["viewer"]}, "a.b", ""),
        ({}, "roles", ""),
        ({"roles": {"viewer": 1}}, "roles", ""),
        ({"roles": 1}, "roles", ""),
    ],
)
def test_roles_of_claims(claims: dict[str, Any], path: str, roles: str) -> None:
    assert granted_roles(claims, path, ROLES) == (parse_grants(roles) if roles else ())
