"""Callers that are let in: passwords, tokens, pages of other origins; and callers that are slowed down."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import time
from typing import TYPE_CHECKING

import jwt
import orjson
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.support.eventually import eventually_async
from worker.rest.security.identities import make_token
from worker.rest.security.passwords import verify_password

from .security import basic, write_users

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from .conftest import Reply, Rest, Start

CONFIG = {"connector.class": "x"}
ISSUER = {"rest_auth_jwt_issuer": "https://login", "rest_auth_jwt_audience": "millrace"}
SECRET = "s" * 32


async def until_status(call: Rest, status: int, headers: dict[str, str]) -> None:
    async def answered() -> bool:
        return (await call("GET", "/connectors", headers=headers)).status == status

    await eventually_async(answered, f"the status is {status}", every=0.02)


@pytest.fixture
async def users(start: Start, tmp_path: Path) -> Rest:
    """A server with the users ada (admin) and rita (read)."""
    call, _ = await start(
        rest_authentication="basic",
        access_control_allow_origin="https://ui.example.com",
        access_control_allow_methods="GET,PUT,POST",
        rest_auth_users_file=write_users(tmp_path / "users", {"ada": "admin", "rita": "read", "zoë": "read"}),
    )
    return call


async def test_basic(users: Rest) -> None:
    refused = await users("GET", "/connectors")
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="Millrace", charset="UTF-8"')
    assert refused.error == "User cannot access the resource: credentials are needed."
    assert (await users("GET", "/connectors", headers=basic("ada", "ada"[::-1]))).status == 200
    assert (await users("GET", "/connectors", headers=basic("zoë", "ëoz"))).status == 200
    assert (await users("PUT", "/connectors/a/config", CONFIG, basic("ada", "ada"))).status == 201
    reply = await users("DELETE", "/connectors/a", headers=basic("rita", "atir"))
    assert (reply.status, reply.error) == (403, "rita needs the role 'admin' for the connector a")
    assert reply.headers["Cache-Control"] == "no-store"
    assert (await users("GET", "/health")).status == 200


@pytest.mark.parametrize(
    "value",
    [
        "Basic",
        "Basic ???",
        "Basic YWRh",
        "Bearer x",
        "Digest username=ada",
        "Basic YWRhOmFkYQ== x",
        "Basic \xff",
        "Basic " + "YWRhOmFkYQ=="[:-1],
        basic("ada", "x" * 2000)["Authorization"],
        basic("", "")["Authorization"],
        basic("ada", "ada\0")["Authorization"],
        basic("ADA", "ada")["Authorization"],
        basic("ada", "")["Authorization"],
    ],
)
async def test_what_is_no_password(users: Rest, value: str) -> None:
    assert (await users("GET", "/connectors", headers={"Authorization": value})).status == 401


async def test_every_name_costs_a_hash(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long an answer takes must not tell who there is, and how they come."""
    looked_at: list[str] = []

    def verify(password: str, text: str) -> bool:
        looked_at.append(password)
        return verify_password(password, text)

    monkeypatch.setattr("worker.rest.security.auth.verify_password", verify)
    call, _ = await start(
        rest_authentication="basic",
        rest_auth_users_file=write_users(tmp_path / "users", {"ada": "admin", "console": "certificate,admin"}),
    )
    for name in ("ada", "console", "nobody"):
        assert (await call("GET", "/connectors", headers=basic(name, f"{name}-x"))).status == 401
    assert looked_at == ["ada-x", "console-x", "nobody-x"]
    # The password of the user whose hash was looked at instead opens nothing.
    for name in ("console", "nobody"):
        assert (await call("GET", "/connectors", headers=basic(name, "ada"[::-1]))).status == 401


async def test_two_authorization_headers_are_none(users: Rest) -> None:
    host, _, port = users.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    good = basic("ada", "ada")["Authorization"]
    writer.write(
        f"GET /connectors HTTP/1.1\r\nHost: x\r\nAuthorization: {good}\r\nAuthorization: {good}\r\n\r\n".encode()
    )
    assert b" 401 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nosuch"),
        ("TRACE", "/connectors"),
        ("OPTIONS", "/connectors"),
        ("HEAD", "/connectors"),
        ("GET", "//connectors"),
        ("GET", "/connectors/../admin/loggers"),
        ("GET", "/health/../connectors"),
        ("GET", "/connectors/"),
        ("GET", "/%63onnectors"),
        ("GET", "/connectors%2Fa"),
        ("GET", "/health%2F..%2Fconnectors"),
        ("GET", "/health;/connectors"),
        ("GET", "/HEALTH"),
        ("PUT", "/connectors/a/fence/"),
        ("POST", "/connectors/a/tasks/0/restart"),
        ("GET", "/metrics/"),
        ("GET", "/admin/loggers"),
        ("PUT", "/admin/drain"),
        ("GET", "/openapi.json"),
    ],
)
async def test_unknown_callers_learn_nothing(users: Rest, method: str, path: str) -> None:
    reply = await users(method, path)
    assert reply.status == (400 if "fence" in path else 401)
    assert "Allow" not in reply.headers


async def test_the_method_is_the_requests(users: Rest) -> None:
    await users("PUT", "/connectors/a/config", CONFIG, basic("ada", "ada"))
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        reply = await users("GET", "/connectors/a", headers={**basic("rita", "atir"), name: "DELETE"})
        assert reply.json["name"] == "a"


async def test_names_are_decoded_once(start: Start, tmp_path: Path) -> None:
    call, herder = await start(
        rest_authentication="basic",
        rest_auth_users_file=write_users(tmp_path / "users", {"op": "operate:a%2Fb|ü\U0001f600"}),
    )
    for name in ("a%2Fb", "a/b", "ü\U0001f600", "a"):
        herder.configs[name], herder.states[name] = CONFIG, "RUNNING"
    status = {
        path: (await call("PUT", f"/connectors/{path}/pause", headers=basic("op", "po"))).status
        for path in ("a%252Fb", "a%2Fb", "%C3%BC%F0%9F%98%80", "a", "a%2Fb%0A", "a%00")
    }
    assert status == {"a%252Fb": 202, "a%2Fb": 403, "%C3%BC%F0%9F%98%80": 202, "a": 403, "a%2Fb%0A": 403, "a%00": 403}


async def test_wrong_passwords_slow_an_address_down_but_not_who_is_in(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    call, _ = await start(
        rest_authentication="basic",
        rest_auth_failures_per_minute="3",
        rest_auth_users_file=write_users(tmp_path / "users", {"ada": "admin", "rita": "read"}),
    )
    assert (await call("GET", "/connectors", headers=basic("ada", "ada"))).status == 200
    for number in range(3):
        # What a client says of its address counts for nothing.
        headers = {**basic("ada", f"wrong-secret-{number}"), "X-Forwarded-For": f"1.2.3.{number}"}
        assert (await call("GET", "/connectors", headers=headers)).status == 401
    slowed = await call("GET", "/connectors", headers={**basic("rita", "atir"), "Forwarded": "for=9.9.9.9"})
    assert (slowed.status, 1 <= int(slowed.headers["Retry-After"]) <= 60) == (429, True)
    assert (await call("GET", "/connectors", headers=basic("ada", "ada"))).status == 200
    assert "Wrong password of user ada" in caplog.text
    assert "wrong-secret" not in caplog.text


async def test_a_clients_first_requests_wait_for_one_hash(start: Start, tmp_path: Path) -> None:
    call, _ = await start(
        rest_authentication="basic",
        rest_auth_failures_per_minute="1",
        rest_auth_users_file=write_users(tmp_path / "users", {"ada": "admin"}),
    )
    replies = await asyncio.gather(*(call("GET", "/connectors", headers=basic("ada", "ada")) for _ in range(20)))
    assert {reply.status for reply in replies} == {200}


async def test_users_are_read_again_when_they_change(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    call, _ = await start(rest_authentication="basic", rest_auth_users_file=write_users(path, {"ada": "admin"}))
    assert (await call("GET", "/connectors", headers=basic("ada", "ada"))).status == 200
    write_users(tmp_path / "next", {"rita": "read"})
    (tmp_path / "next").replace(path)
    await until_status(call, 200, basic("rita", "atir"))
    assert (await call("GET", "/connectors", headers=basic("ada", "ada"))).status == 401
    path.write_text("rita=atir,read\n")
    await eventually_async(lambda: "can't be used; the old ones stay" in caplog.text, "the log says so")
    assert (await call("GET", "/connectors", headers=basic("rita", "atir"))).status == 200
    assert "atir" not in caplog.text


async def test_the_users_of_a_java_connect(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "credentials").write_text("connect=geheim\n")
    jaas = tmp_path / "jaas.conf"
    package = "org.apache.kafka.connect.rest.basic.auth.extension"
    jaas.write_text(
        f"/* users */\nOther {{ x.Y required; }};\nKafkaConnect {{\n  {package}.PropertyFileLoginModule required\n"
        f'  file="{tmp_path / "credentials"}";\n}};\n'
    )
    call, _ = await start(
        rest_extension_classes=f"{package}.BasicAuthSecurityRestExtension", java_security_auth_login_config=str(jaas)
    )
    assert (await call("PUT", "/connectors/a/config", CONFIG, basic("connect", "geheim"))).status == 201
    assert (await call("GET", "/connectors", headers=basic("connect", "Geheim"))).status == 401
    assert (await call("GET", "/connectors")).status == 401
    assert "holds passwords in plain text" in caplog.text
    assert "geheim" not in caplog.text


async def test_static_tokens(start: Start, tmp_path: Path) -> None:
    (token, line), (old, old_line) = make_token(), make_token()
    path = tmp_path / "tokens"
    path.write_text(f"ci={line},operate:nightly-.*\nleft={old_line},admin,expires=2020-01-01\n")
    call, herder = await start(rest_authentication="bearer", rest_auth_tokens_file=str(path))
    herder.configs["nightly-1"], herder.states["nightly-1"] = CONFIG, "RUNNING"
    assert (
        await call("PUT", "/connectors/nightly-1/pause", headers={"Authorization": f"bearer {token}"})
    ).status == 202
    assert (await call("DELETE", "/connectors/nightly-1", headers={"Authorization": f"Bearer {token}"})).status == 403
    for wrong in (old, token[:-1], token + "x", ""):
        reply = await call("GET", "/connectors", headers={"Authorization": f"Bearer {wrong}"})
        assert (reply.status, reply.headers["WWW-Authenticate"]) == (
            401,
            'Bearer realm="Millrace", error="invalid_token"',
        )


def claims(**more: Any) -> dict[str, Any]:
    return {
        "iss": "https://login",
        "aud": "millrace",
        "sub": "ada",
        "exp": time.time() + 60,
        "roles": ["admin"],
        **more,
    }


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 201),
        ({"aud": ["x", "millrace"]}, 201),
        ({"roles": "x admin"}, 201),
        ({"exp": -10}, 201),
        ({"roles": ["read"]}, 403),
        ({"roles": []}, 403),
        ({"roles": {"admin": 1}}, 403),
        ({"roles": ["chief"]}, 403),
        ({"exp": -3600}, 401),
        ({"aud": "other"}, 401),
        ({"iss": "https://evil"}, 401),
        ({"sub": 1}, 401),
        ({"nbf": 3600}, 401),
        ({"sub": "a\nb"}, 401),
        ({"exp": "never"}, 401),
        ({"exp": None}, 401),
        ({"aud": None}, 401),
    ],
)
async def test_claims(start: Start, change: dict[str, Any], status: int) -> None:
    call, _ = await start(rest_authentication="bearer", rest_auth_jwt_secret=SECRET, **ISSUER)
    # Times are seconds from now; None leaves a claim out.
    moved = {
        name: time.time() + value if name in {"exp", "nbf"} and isinstance(value, int) else value
        for name, value in change.items()
    }
    encoded = _encode({name: value for name, value in claims(**moved).items() if value is not None}, SECRET, "HS256")
    assert (await call("PUT", "/connectors/a/config", CONFIG, {"Authorization": f"Bearer {encoded}"})).status == status


def _encode(token: dict[str, Any], key: Any, algorithm: str, kid: str | None = None) -> str:
    header = orjson.dumps({"alg": algorithm, "typ": "JWT", **({} if kid is None else {"kid": kid})})
    jws = jwt.PyJWS()
    return jws.encode(orjson.dumps(token), key, algorithm=algorithm, headers=orjson.loads(header))


def _by_hand(token: dict[str, Any], secret: bytes) -> str:
    """Signed with HS256 by no library, which would refuse the secret."""
    parts = [
        base64.urlsafe_b64encode(orjson.dumps(part)).rstrip(b"=") for part in ({"alg": "HS256", "kid": "one"}, token)
    ]
    signed = base64.urlsafe_b64encode(hmac.digest(secret, b".".join(parts), "sha256")).rstrip(b"=")
    return b".".join((*parts, signed)).decode()


async def test_signatures(start: Start, tmp_path: Path) -> None:
    rsa_key, other, curve = (
        rsa.generate_private_key(65537, 2048),
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP256R1()),
    )
    public = RSAAlgorithm.to_jwk(rsa_key.public_key(), as_dict=True)
    keys = tmp_path / "keys.json"
    keys.write_bytes(
        orjson.dumps(
            {
                "keys": [
                    {**public, "kid": "one", "use": "sig", "alg": "RS256"},
                    {**ECAlgorithm.to_jwk(curve.public_key(), as_dict=True), "kid": "c"},
                    {"kty": "oct", "k": "AAAA", "kid": "weak"},
                    {"kty": "new"},
                ]
            }
        )
    )
    call, _ = await start(
        rest_authentication="bearer", rest_auth_jwt_keys=str(keys), rest_auth_failures_per_minute="10000", **ISSUER
    )

    async def status(token: str) -> int:
        return (await call("GET", "/connectors", headers={"Authorization": f"Bearer {token}"})).status

    assert await status(_encode(claims(), rsa_key, "RS256", "one")) == 200
    assert await status(_encode(claims(), rsa_key, "RS256")) == 200
    assert await status(_encode(claims(), curve, "ES256", "c")) == 200
    assert await status(_encode(claims(), other, "RS256", "one")) == 401
    assert await status(_encode(claims(), rsa_key, "RS256", "two")) == 401
    assert await status(_encode(claims(), rsa_key, "PS256", "one")) == 401
    assert await status(_by_hand(claims(), b"\0\0\0")) == 401
    # A public key as the secret of a symmetric signature, and no signature at all.
    assert await status(_by_hand(claims(), orjson.dumps(public))) == 401
    unsigned = _encode(claims(), None, "none")
    assert await status(unsigned) == 401
    assert await status("a.b.c") == 401
    changed = tmp_path / "next"
    changed.write_bytes(
        orjson.dumps({"keys": [{**RSAAlgorithm.to_jwk(other.public_key(), as_dict=True), "kid": "one"}]})
    )
    changed.replace(keys)
    await until_status(call, 200, {"Authorization": f"Bearer {_encode(claims(), other, 'RS256', 'one')}"})
    assert await status(_encode(claims(), rsa_key, "RS256", "one")) == 401


async def test_keys_that_do_not_say_what_they_are_for(start: Start, tmp_path: Path) -> None:
    rsa_key, curve = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
    public = RSAAlgorithm.to_jwk(rsa_key.public_key(), as_dict=True)
    path = tmp_path / "keys.json"
    path.write_bytes(
        orjson.dumps(
            {
                "keys": [
                    public,
                    {**public, "kid": "r"},
                    {**public, "kid": "said", "alg": "RS256"},
                    {**public, "kid": ["odd"]},
                    ECAlgorithm.to_jwk(curve.public_key(), as_dict=True),
                ]
            }
        )
    )
    call, _ = await start(
        rest_authentication="bearer",
        rest_auth_jwt_keys=str(path),
        rest_auth_jwt_algorithms="RS256,PS512,ES256",
        **ISSUER,
    )

    async def status(key: Any, algorithm: str, kid: str | None = None) -> int:
        token = _encode(claims(), key, algorithm, kid)
        return (await call("GET", "/connectors", headers={"Authorization": f"Bearer {token}"})).status

    assert [
        await status(rsa_key, "PS512", "r"),
        await status(rsa_key, "RS256", "r"),
        await status(rsa_key, "PS512"),
    ] == [200] * 3
    assert await status(curve, "ES256") == 200
    assert [await status(rsa_key, "RS256", "said"), await status(rsa_key, "PS512", "said")] == [200, 401]
    assert await status(rsa_key, "RS512", "r") == 401


async def test_keys_are_fetched_and_kept(start: Start) -> None:
    key, asked = ec.generate_private_key(ec.SECP256R1()), 0

    async def serve(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({"keys": [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "k"}]})

    app = web.Application()
    app.router.add_get("/certs", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        call, _ = await start(
            rest_authentication="bearer",
            rest_auth_jwt_keys=f"http://127.0.0.1:{runner.addresses[0][1]}/certs",
            **ISSUER,
        )
        headers = {"Authorization": f"Bearer {_encode(claims(), key, 'ES256', 'k')}"}
        replies = await asyncio.gather(*(call("GET", "/connectors", headers=headers) for _ in range(5)))
        assert {reply.status for reply in replies} == {200}
        unknown = {"Authorization": f"Bearer {_encode(claims(), key, 'ES256', 'other')}"}
        assert (await call("GET", "/connectors", headers=unknown)).status == 401
        assert asked == 1  # an unknown key does not make it ask each time
    finally:
        await runner.cleanup()
    assert (await call("GET", "/connectors", headers=headers)).status == 200


async def test_a_browsers_question_has_no_credentials(users: Rest) -> None:
    origin = {"Origin": "https://ui.example.com"}
    asked = await users(
        "OPTIONS",
        "/connectors/a/config",
        headers={
            **origin,
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "authorization, content-type",
        },
    )
    assert asked.status == 200
    assert asked.headers["Access-Control-Allow-Origin"] == "https://ui.example.com"
    assert "Authorization" in asked.headers["Access-Control-Allow-Headers"]
    assert (await users("PUT", "/connectors/a/config", CONFIG, {**origin, **basic("ada", "ada")})).status == 201
    # Also of a refusal, a page learns why.
    assert (await users("GET", "/connectors", headers=origin)).headers["Access-Control-Allow-Origin"] == origin[
        "Origin"
    ]
    assert (await users("OPTIONS", "/connectors", headers=origin)).status == 401


async def test_pages_of_other_origins_change_nothing(users: Rest) -> None:
    await users("PUT", "/connectors/a/config", CONFIG, basic("ada", "ada"))
    for headers in (
        {"Origin": "https://evil.example.com"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example.com", "X-Forwarded-Host": "evil.example.com"},
    ):
        reply = await users("POST", "/connectors/a/restart", headers={**basic("ada", "ada"), **headers})
        assert reply.status == 403, headers
    for headers in (
        {"Origin": users.url},
        {"Origin": "https://ui.example.com", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
    ):
        assert (await users("POST", "/connectors/a/restart", headers={**basic("ada", "ada"), **headers})).status == 204


async def test_all_origins_get_no_credentials(start: Start, tmp_path: Path) -> None:
    call, _ = await start(
        rest_authentication="basic",
        access_control_allow_origin="*",
        rest_auth_users_file=write_users(tmp_path / "users", {"ada": "admin"}),
    )
    reply = await call("GET", "/connectors", headers={**basic("ada", "ada"), "Origin": "https://evil.example.com"})
    assert reply.status == 200
    assert "Access-Control-Allow-Credentials" not in reply.headers


async def test_rates(start: Start, tmp_path: Path) -> None:
    call, _ = await start(
        rest_authentication="basic",
        rest_rate_limit_requests_per_second="0.01",
        rest_rate_limit_burst="3",
        rest_auth_users_file=write_users(tmp_path / "users", {"ada": "admin", "rita": "read"}),
    )
    for _ in range(3):
        assert (await call("GET", "/connectors", headers=basic("ada", "ada"))).status == 200
    limited = await call("GET", "/connectors", headers=basic("ada", "ada"))
    assert (limited.status, 90 < int(limited.headers["Retry-After"]) <= 101) == (429, True)
    assert "rest.rate.limit.requests.per.second allows (0.01)" in limited.error
    assert (await call("GET", "/connectors", headers=basic("rita", "atir"))).status == 200
    assert (await call("GET", "/health")).status == 200


async def test_who_is_not_let_in_is_counted_by_address(start: Start, tmp_path: Path) -> None:
    call, _ = await start(
        rest_authentication="basic",
        rest_rate_limit_requests_per_second="0.01",
        rest_rate_limit_burst="2",
        rest_auth_users_file=write_users(tmp_path / "users", {"ada": "admin"}),
    )
    assert [(await call("GET", "/connectors")).status for _ in range(3)] == [401, 401, 429]
    assert (await call("GET", "/connectors", headers=basic("ada", "ada"))).status == 200


async def test_a_caller_without_a_role_does_not_learn_what_exists(start: Start) -> None:
    call, _ = await start(rest_authentication="bearer", rest_auth_jwt_secret=SECRET, **ISSUER)
    for roles, status in (([], 403), (["read"], 404)):
        headers = {"Authorization": f"Bearer {_encode(claims(roles=roles), SECRET, 'HS256')}"}
        assert (await call("GET", "/nosuch", headers=headers)).status == status


async def test_rates_without_authentication_are_by_address(start: Start) -> None:
    call, _ = await start(rest_rate_limit_requests_per_second="0.01", rest_rate_limit_burst="2")
    assert [(await call("GET", "/", headers={"X-Forwarded-For": f"1.1.1.{n}"})).status for n in range(3)] == [
        200,
        200,
        429,
    ]


async def test_changes_are_written_down(users: Rest, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "worker.rest.audit")
    await users("PUT", "/connectors/a%0Ab/config", CONFIG, basic("ada", "ada"))
    await users("DELETE", "/connectors/x?password=hunter2", headers=basic("rita", "atir"))
    await users("GET", "/connectors", headers=basic("rita", "atir"))
    lines = [record.getMessage() for record in caplog.records if record.name == "worker.rest.audit"]
    assert lines == [
        'user="ada" auth=basic address=127.0.0.1 worker=no method="PUT" path="/connectors/a%0Ab/config" status=201',
        'user="rita" auth=basic address=127.0.0.1 worker=no method="DELETE" path="/connectors/x" status=403',
    ]


async def test_too_many_at_once(start: Start) -> None:
    call, herder = await start(rest_max_concurrent_requests="1")
    herder.hang = asyncio.Event()
    first = asyncio.create_task(call("GET", "/connectors"))

    async def refused() -> Reply | None:
        answer = await call("GET", "/")
        return answer if answer.status == 503 else None

    reply = await eventually_async(refused, "a request is refused", every=0)
    assert reply.headers["Retry-After"] == "1"
    herder.hang.set()
    assert (await first).status == 200
    assert (await call("GET", "/health")).status == 200
    assert (await call("GET", "/")).status == 200
