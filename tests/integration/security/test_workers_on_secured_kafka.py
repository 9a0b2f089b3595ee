"""Whole workers on a Kafka that asks for logins and certificates, and what they say when it does not let them in."""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.security.kafka_security import MUTUAL, OAUTH, PLAIN, SCRAM, KafkaListener, jaas_config
from compose.local.worker import MillraceWorker
from connectors.errors import Fatal
from offsets.admin import TopicAdmin
from offsets.refusal import BrokerLoginRefused
from tests.integration.security.conftest import USERS, SecuredKafka
from tests.support.eventually import eventually
from worker.fetch.errors import StackError
from worker.host.delivery.commits import CommitUnit
from worker.host.delivery.producer import Producer
from worker.host.delivery.routes import ProducerSettings
from worker.kafka.clients import CREDENTIALS, client_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def failed(error: Exception) -> None:
    """The callback of a producer that can't continue."""
    pytest.fail(str(error))


def properties_of(kind: KafkaListener, kafka: SecuredKafka, folder: Path) -> dict[str, str]:
    """A worker's properties for a listener, each with its secrets written in another way."""
    folder.mkdir(exist_ok=True)
    if kind is PLAIN:
        (folder / "login.properties").write_text(f"password={USERS['worker']}\n")
        return {
            "config.providers": "file",
            "config.providers.file.class": "FileConfigProvider",
            "connector.client.config.override.policy": "Allowlist",
            "connector.client.config.override.allowlist": "sasl.jaas.config,sasl.mechanism",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas_config("worker", "HERE").replace(
                "HERE", f"${{file:{folder}/login.properties:password}}"
            ),
        }
    if kind is SCRAM:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            **kafka.trust,
            "sasl.jaas.config": jaas_config("worker", USERS["worker"], "SCRAM-SHA-512"),
            "exactly.once.source.support": "enabled",
        }
    if kind is MUTUAL:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PKCS12",
            "ssl.keystore.type": "PKCS12",
            "ssl.truststore.location": str(kafka.stores / "trust.p12"),
            "ssl.truststore.password": "store-Secret-5",
            "ssl.keystore.location": str(kafka.stores / "worker.p12"),
            "ssl.keystore.password": "store-Secret-5",
        }
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{kafka.tokens.url}/token",
        "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="worker" clientSecret="client-Secret-6" scope="kafka";',
    }


@pytest.fixture(scope="module")
def workers(secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, MillraceWorker]]:
    """A worker on each listener, all started at once, each with a connector that reads a file."""
    folder = tmp_path_factory.mktemp("workers")
    workers = {
        kind.name: MillraceWorker(
            folder / kind.name,
            secured.cluster.secured(kind),
            group=f"secured-{kind.name.lower()}",
            port=None,
            processes=1 if kind in (PLAIN, SCRAM) else 0,
            properties=properties_of(kind, secured, folder / kind.name),
        )
        for kind in (PLAIN, SCRAM, MUTUAL, OAUTH)
    }

    def start(name: str) -> None:
        (folder / name / "lines.txt").write_text("".join(f"line {number}\n" for number in range(50)))
        workers[name].start()
        workers[name].create(
            "lines",
            {
                "connector.class": "file",
                "file": str(folder / name / "lines.txt"),
                "tasks.max": "1",
                "topic": f"lines-{name}",
                "value.converter.schemas.enable": "false",
            },
        )

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(start, workers))
        yield workers
    finally:
        for worker in workers.values():
            worker.kill()


def records(kafka: SecuredKafka, topic: str, count: int, **more: Any) -> list[bytes]:
    """The first values of a topic, read without a login."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": kafka.cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
            **more,
        }
    )
    try:
        consumer.subscribe([topic])
        values: list[bytes] = []
        for _ in range(100):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
            if len(values) >= count:
                break
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", [PLAIN, SCRAM, MUTUAL, OAUTH], ids=lambda kind: kind.name)
def test_a_worker_and_its_connector_run(
    secured: SecuredKafka, workers: dict[str, MillraceWorker], kind: KafkaListener
) -> None:
    worker = workers[kind.name]
    worker.wait_running("lines", 1)
    assert len(records(secured, f"lines-{kind.name}", 50)) == 50
    if kind is OAUTH:
        assert set(secured.tokens.issued) == {"worker"}


def test_connectors_have_principals_of_their_own(
    secured: SecuredKafka, workers: dict[str, MillraceWorker], tmp_path: Path
) -> None:
    """Each may only write where its own user may, whatever the worker's user may."""
    worker = workers[PLAIN.name]
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    for user in ("alice", "bob"):
        secured.allow(user, "TOPIC", f"of-{user}-", "WRITE", "DESCRIBE", "CREATE")

    def config(user: str, topic: str) -> dict[str, str]:
        return {
            "connector.class": "file",
            "file": str(tmp_path / "in.txt"),
            "topic": topic,
            "tasks.max": "1",
            "producer.override.sasl.jaas.config": jaas_config(user, USERS[user]),
        }

    worker.create("alice", config("alice", "of-alice-topic"))
    worker.create("bob", config("bob", "of-alice-topic"))
    worker.wait_running("alice", 1)
    assert len(records(secured, "of-alice-topic", 2)) == 2
    worker.wait_for(
        lambda: worker.states("bob") == ("RUNNING", ["FAILED"]),
        30,
        "bob may write to alice's topic",
        lambda: worker.states("bob"),
    )
    trace = str(worker.request("GET", "/connectors/bob/status")[1]["tasks"][0]["trace"])
    assert "TopicAuthorizationFailed" in trace
    assert "Describe and Write" in trace
    worker.create("bob", config("bob", "of-bob-topic"))
    worker.wait_running("bob", 1)
    assert len(records(secured, "of-bob-topic", 2)) == 2


def test_overrides_that_the_policy_forbids_are_refused(workers: dict[str, MillraceWorker], tmp_path: Path) -> None:
    status, body = workers[PLAIN.name].request(
        "PUT",
        "/connectors/forbidden/config",
        {
            "connector.class": "file",
            "file": str(tmp_path / "in.txt"),
            "topic": "t",
            "producer.override.linger.ms": "5",
            "producer.override.sasl.mechanism": "PLAIN",
        },
    )
    assert status == 400
    assert "The 'Allowlist' policy does not allow 'linger.ms' to be overridden" in body["message"]
    assert "sasl.mechanism' to be" not in body["message"]


async def test_a_producer_in_use_logs_in_with_its_new_password(secured: SecuredKafka) -> None:
    """The SCRAM password is changed, the connections are cut: the next ones are made with what was handed over."""
    of_admin: Any = import_module("confluent_kafka.admin")  # its types hide the names used here

    def properties(password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            **secured.trust,
            "bootstrap.servers": secured.cluster.secured(SCRAM),
            "sasl.jaas.config": jaas_config("rotating", password),
        }

    def change(password: str) -> None:
        info = of_admin.ScramCredentialInfo(of_admin.ScramMechanism.SCRAM_SHA_512, 4096)
        changes = [of_admin.UserScramCredentialUpsertion("rotating", info, password.encode())]
        admin = secured.admin()
        admin.alter_user_scram_credentials(changes)["rotating"].result(10)

    def lets_in(password: str) -> bool:
        from confluent_kafka import KafkaException

        admin = secured.admin(
            **{
                "bootstrap.servers": secured.cluster.secured(SCRAM),
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "rotating",
                "sasl.password": password,
                "ssl.ca.location": str(secured.stores / "trust.pem"),
            }
        )
        try:
            admin.list_topics(timeout=2)
        except KafkaException:
            return False
        return True

    def until_let_in(password: str) -> None:
        eventually(lambda: lets_in(password), "Kafka takes over the password")

    secured.allow("rotating", "TOPIC", "rotated", "WRITE", "DESCRIBE", "CREATE")
    await asyncio.to_thread(change, "first-Secret-8")
    await asyncio.to_thread(until_let_in, "first-Secret-8")
    settings = ProducerSettings(client_arguments(properties("first-Secret-8"), "producer").arguments)
    producer = Producer("rotating", settings, failed)
    await producer.start()
    try:
        route = await producer.route("rotated")
        await asyncio.to_thread(change, "second-Secret-9")
        await asyncio.to_thread(until_let_in, "second-Secret-9")
        newer = client_arguments(properties("second-Secret-9"), "producer").arguments
        settings.arguments.update({name: newer[name] for name in CREDENTIALS if name in newer})
        producer.credentials_changed()
        client = producer._client.client  # type: ignore[union-attr]
        for connection in list(client._conns.values()):  # there is no other way to cut them
            connection.close()
        written = asyncio.Event()
        unit = CommitUnit()
        unit.done = lambda _: written.set()
        route.append(unit, [b"value"], [b"key"])
        unit.release()
        route.kick()
        await asyncio.wait_for(written.wait(), 20)
        assert producer.rebuilds == 0
    finally:
        await producer.close()


def refused_logins(kafka: SecuredKafka, folder: Path) -> dict[str, tuple[str, dict[str, str], str]]:
    """Cases: the address that a client connects to, its properties, and the error that it must get."""
    cluster = kafka.cluster
    good = jaas_config("worker", USERS["worker"])
    bad = jaas_config("worker", "not-the-password")
    tls = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    oauth = properties_of(OAUTH, kafka, folder / "x")
    late = kafka.authority.issue("late", since=timedelta(days=31)).write_pem(folder / "late.pem")
    return {
        "password": (
            cluster.secured(PLAIN),
            plain | {"sasl.jaas.config": bad},
            "refuses the login of user 'worker' with PLAIN.*Check username and password in sasl.jaas.config",
        ),
        "scram password": (
            cluster.secured(SCRAM),
            tls | kafka.trust | {"sasl.jaas.config": bad},
            "refuses the login of user 'worker' with SCRAM-SHA-512",
        ),
        "mechanism": (
            cluster.secured(SCRAM),
            tls | kafka.trust | {"sasl.jaas.config": good, "sasl.mechanism": "PLAIN"},
            "does not take sasl.mechanism PLAIN",
        ),
        "untrusted": (
            cluster.secured(SCRAM),
            tls | {"sasl.jaas.config": good},
            "certificate that is not believed.*ssl.truststore.location",
        ),
        "no certificate": (
            cluster.secured(MUTUAL),
            {"security.protocol": "SSL", **kafka.trust},
            "refuses this client's certificate, or the lack of one.*ssl.keystore.location",
        ),
        "expired certificate": (
            cluster.secured(MUTUAL),
            {"security.protocol": "SSL", "ssl.keystore.location": str(late), **kafka.trust},
            "refuses this client's certificate, or the lack of one.*that has not expired",
        ),
        "client secret": (
            cluster.secured(OAUTH),
            {name: value.replace("Secret-6", "X") for name, value in oauth.items()},
            "the token endpoint .* refuses the client with status 401.*Check the client's id and secret",
        ),
        "no login": (cluster.secured(PLAIN), {}, "closes the connection. security.protocol is PLAINTEXT"),
        "no TLS there": (
            cluster.bootstrap,
            tls | kafka.trust | {"sasl.jaas.config": good},
            "does not speak TLS on this port",
        ),
        "no login there": (cluster.bootstrap, plain | {"sasl.jaas.config": good}, "expects no login on this port"),
    }


async def test_clients_learn_why_they_are_refused(secured: SecuredKafka, tmp_path: Path) -> None:
    for name, (where, properties, message) in refused_logins(secured, tmp_path).items():
        arguments = client_arguments({**properties, "bootstrap.servers": where}, "producer").arguments
        with pytest.raises(BrokerLoginRefused, match=message) as caught:
            async with TopicAdmin({**arguments, "client_id": name}):
                pass
        assert not re.search("Secret-[0-9]|not-the-password", str(caught.value))
        if not caught.value.passing:
            with pytest.raises(Fatal, match=message):
                await Producer(name, ProducerSettings(arguments), failed).start()


def test_a_worker_with_a_wrong_password_ends_and_says_so(secured: SecuredKafka, tmp_path: Path) -> None:
    properties = properties_of(PLAIN, secured, tmp_path / "worker") | {
        "sasl.jaas.config": jaas_config("worker", "Wrong-Password-7")
    }
    worker = MillraceWorker(
        tmp_path / "worker", secured.cluster.secured(PLAIN), port=None, processes=1, properties=properties
    )
    with pytest.raises(StackError):
        worker.start()
    log = (tmp_path / "worker" / "worker.log").read_text()
    assert "The worker could not start: Kafka at " in log
    assert "refuses the login of user 'worker' with PLAIN" in log
    assert "Traceback" not in log
    assert "Wrong-Password-7" not in log


async def test_a_missing_permission_is_named(secured: SecuredKafka) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas_config("mallory", USERS["mallory"]),
        "bootstrap.servers": secured.cluster.secured(PLAIN),
    }
    settings = ProducerSettings(client_arguments(login, "producer").arguments)
    with pytest.raises(Fatal, match="Give its user the permission Write on the topics"):
        await Producer("task", settings, failed).start()
    secured.allow("mallory", "TOPIC", "of-mallory-", "WRITE", "DESCRIBE", "CREATE")
    deadline = time.monotonic() + 20
    while True:
        producer = Producer("task", settings, failed)
        try:
            await producer.start()
        except Fatal:
            assert time.monotonic() < deadline, "Kafka did not take over the permission"
        else:
            break
    try:
        with pytest.raises(
            Fatal, match=r"refuses topic 'not-for-mallory'.*Give its user the permissions Describe and Write"
        ):
            await producer.route("not-for-mallory")
    finally:
        await producer.close()


@pytest.mark.parametrize("kind", [SCRAM, MUTUAL], ids=lambda kind: kind.name)
def test_a_spark_job_s_python_clients_take_the_same_properties(
    secured: SecuredKafka, kind: KafkaListener, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient

    from connectors.options import Config
    from spark_jobs.kafka.clients import build_client_config

    properties = properties_of(kind, secured, tmp_path) | {"bootstrap.servers": secured.cluster.secured(kind)}
    client = AdminClient(
        build_client_config(
            Config(
                {},
                {
                    f"kafka.{name}": value
                    for name, value in properties.items()
                    if name.startswith(("bootstrap.", "security.", "sasl.", "ssl."))
                },
            )
        )
    )
    assert client.list_topics(timeout=10).brokers
