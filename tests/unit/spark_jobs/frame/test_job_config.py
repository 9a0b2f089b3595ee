"""The checks of a job: every complaint at once, defaults that depend on others, secrets."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from compose.local.security.certificates import Authority
from connectors.errors import ConfigInvalid
from connectors.options import ConfigDef, ConfigKey, ConfigType
from spark_jobs import run
from spark_jobs.config import job_files as config
from spark_jobs.connector import SparkJob
from spark_jobs.contract import Batch, Sink, Source, TableChanges
from spark_jobs.flows import plan
from spark_jobs.flows.planning import plan_flow
from spark_jobs.kafka import clients

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.options import Config


class PlainTarget(Sink):
    """Offers everything but exactly once."""

    config_def: ClassVar = ConfigDef(
        [
            ConfigKey(name="sink.target.path", type=ConfigType.STRING, doc="Where."),
            ConfigKey(name="sink.target.password", type=ConfigType.PASSWORD, default=None, doc="Secret."),
        ]
    )
    guarantees: ClassVar[tuple[str, ...]] = ("at-least-once", "none")
    pass_through: ClassVar = ("sink.target.driver.",)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        return ["sink.target.path: must not be /"] if config["sink.target.path"] == "/" else []

    def write(self, batch: Batch) -> int:
        raise NotImplementedError


class AnyFormat(Source):
    """Has an option of its own, and repeats one of the frame's."""

    config_def: ClassVar = ConfigDef(
        [
            ConfigKey(name="source.any.key", type=ConfigType.STRING, default="id", doc="A key."),
            ConfigKey(name="source.value.encoding", type=ConfigType.STRING, default="other", doc="The frame's counts."),
        ]
    )

    def changes(self, batch: Batch) -> list[TableChanges]:
        raise NotImplementedError


HERE = f"{__name__}:"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """``module:Class`` must find this file, whatever the name under which pytest imported it."""
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this())


def _this() -> Any:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def job(**more: str) -> dict[str, str]:
    return {
        "name": "orders",
        "kafka.bootstrap.servers": "h:9092",
        "source.topics": "a,b",
        "source.format": f"{HERE}AnyFormat",
        "sink.type": f"{HERE}PlainTarget",
        "sink.target.path": "/data",
    } | {name.replace("__", "."): value for name, value in more.items()}


def complaints(properties: dict[str, str]) -> list[str]:
    try:
        config.build_flow(config.JobFile(properties))
    except ConfigInvalid as error:
        return str(error).splitlines()
    return []


def test_defaults_that_depend_on_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    built = config.build_job(job())
    assert built.guarantee == "at-least-once"
    assert built.config["kafka.group.id"] == "millrace-orders"
    assert built.config["state.dir"] == str(tmp_path / "cache" / "jobs" / "orders")
    assert built.checkpoint == str(tmp_path / "home" / "jobs" / "orders" / "checkpoint")
    assert built.config["source.value.encoding"] == "json"
    assert built.config["source.any.key"] == "id"
    other = config.build_job(job(state__dir="/s", kafka__group__id="g", guarantee="none"))
    assert (other.checkpoint, other.config["kafka.group.id"], other.guarantee) == ("/s/checkpoint", "g", "none")


def test_every_complaint_at_once() -> None:
    problems = complaints(
        job(
            name="no name",
            source__topics__pattern="x",
            guarantee="exactly-once",
            errors__retry__delay__ms="5x",
            source__topcs="t",
            sink__type=f"{HERE}PlainTarget",
            errors__deadletterqueue__topic__name="dead",
        )
    )
    assert len(problems) == 6
    text = "\n".join(problems)
    assert "Unknown configuration source.topcs; did you mean source.topics?" in text
    assert "Invalid value no name for configuration name" in text
    assert "source.topics and source.topics.pattern are both given" in text
    assert "the _ offers at-least-once, none".replace("_", f"{HERE}PlainTarget sink") in text
    assert "Not a number of type LONG" in text
    assert "has no effect with errors.tolerance=none" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"source.format": "debezum"}, "did you mean debezium?"),
        ({"sink.type": "s3"}, ", or module:Class of your own"),
        ({"sink.type": "nowhere.at_all:Sink"}, "nowhere.at_all:Sink can't be imported"),
        ({"sink.type": f"{HERE}Nothing"}, "has no class Nothing"),
        ({"source.value.encoding": "avro"}, "Missing required configuration source.schema.registry.url"),
        ({"source.topics": ""}, "give source.topics or source.topics.pattern"),
        ({"source.topics": "a,a"}, "a topic is named twice"),
        ({"source.topics.pattern": "a(", "source.topics": ""}, "Invalid regex"),
        ({"sink.target.path": "/"}, "sink.target.path: must not be /"),
        ({"sink.jdbc.url": "x"}, "it belongs to sink.type=jdbc"),
        ({"materializer.emit.unchanged": "true"}, "it belongs to transform.type=materialize"),
        ({"transform.type": "materialize"}, "sink.type must be kafka"),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "b"},
            "the dead letter topic is one of source.topics",
        ),
        ({"errors.retry.delay.ms": "100000"}, "it is more than errors.retry.delay.max.ms"),
        ({"spark.app.name": "x"}, "spark.app.name can't be set"),
        ({"metrics.port": "70000"}, "no more than 65535"),
        ({"kafka.sasl.jaas.config": "${env:NO_SUCH_VARIABLE}"}, "NO_SUCH_VARIABLE is not in the environment"),
        ({"sink.target.password": "${file:/no/such/file:key}"}, "Could not read properties from file"),
        ({"sink.target.password": "${nosuch:x}"}, "${nosuch:x} in the option sink.target.password has no value"),
    ],
)
def test_complaints(more: dict[str, str], message: str) -> None:
    problems = complaints(job() | more)
    assert any(message in text for text in problems), problems


def test_a_secret_whose_key_is_missing_is_complained_of_once() -> None:
    (complaint,) = complaints(job() | {"sink.target.password": "${env:NO_SUCH_VARIABLE}"})
    assert "NO_SUCH_VARIABLE is not in the environment" in complaint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.sasl.password", "${nosuch:x}"),
        ("kafka.sasl.jaas.config", 'org.PlainLoginModule required username="u" password="${nosuch:x}";'),
        ("source.schema.registry.basic.auth.user.info", "user:${nosuch:x}"),
        ("source.schema.registry.url", "http://user:${nosuch:x}@registry:8081"),
        ("spark.hadoop.fs.s3a.secret.key", "${nosuch:x}"),
        ("sink.kafka.producer.ssl.key.password", "${nosuch:x}"),
        ("sink.kafka.schema.registry.basic.auth.user.info", "${nosuch:x}"),
    ],
)
def test_a_secret_for_a_client_that_is_only_a_reference_is_refused(name: str, value: str) -> None:
    target = {"sink.type": "kafka", "sink.kafka.topic": "out", "sink.kafka.content": "rows"}
    rows = {option: text for option, text in job().items() if not option.startswith("sink.")} | target
    (complaint,) = complaints(rows | {name: value})
    assert complaint.startswith(f"${{nosuch:x}} in the option {name} has no value: check the provider's name")
    flow = {option.replace("sink.", "sink.one."): text for option, text in rows.items()} | {"sinks": "one"}
    given_name = name.replace("sink.", "sink.one.")
    (problem,) = config.check_flow(flow | {given_name: value})[1]
    assert (problem.name, f"in the option {given_name} has" in problem.message) == (given_name, True)


def test_a_template_of_a_column_is_no_secret() -> None:
    target = {"sink.type": "kafka", "sink.kafka.topic": "out", "sink.kafka.content": "rows"}
    rows = {option: text for option, text in job().items() if not option.startswith("sink.")} | target
    assert complaints(rows | {"sink.kafka.header.order_key": "${column:id}"}) == []


def test_what_belongs_to_parts_and_clients_is_accepted() -> None:
    more = {
        "sink.target.driver.timeout": "5",
        "kafka.security.protocol": "PLAINTEXT",
        "spark.cores.max": "2",
        "source.schema.registry.basic.auth.user.info": "a:b",
        "connector.class": "spark_jobs.SparkJob",
    }
    assert complaints(job() | more) == []


def test_a_stronger_guarantee_satisfies() -> None:
    assert config._find_guarantee("none", PlainTarget) == "none"

    class Strict(PlainTarget):
        guarantees: ClassVar[tuple[str, ...]] = ("exactly-once",)

    assert config._find_guarantee("none", Strict) == "exactly-once"
    assert config._find_guarantee("at-least-once", Strict) == "exactly-once"


def test_messages_name_file_and_line() -> None:
    file = config.parse_text(
        "name: x\nsource.topcs: a\nkafka.bootstrap.servers: h\nsource.format: nonsense\n", "j.yaml"
    )
    with pytest.raises(ConfigInvalid) as caught:
        config.build_job(file)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("j.yaml:2: Unknown configuration source.topcs")
    assert lines[1].startswith("j.yaml:4: Invalid value nonsense for configuration source.format")
    assert all(line.startswith("j.yaml: ") for line in lines[2:])


def test_secrets_are_resolved_and_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("password=hunter2\n")
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter3")
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${env:KAFKA_PASSWORD}";'
    secrets = {
        "sink.target.password": f"${{file:{tmp_path}/secrets.properties:password}}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas,
    }
    built = config.build_job(config.JobFile(job() | secrets))
    assert built.config["sink.target.password"].value == "hunter2"
    assert "hunter" not in repr(built.config)
    assert clients.build_client_config(built.config, group_id="g") == {
        "bootstrap.servers": "h:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "hunter3",
        "group.id": "g",
    }
    assert clients.spark_options(built.config)["kafka.sasl.jaas.config"].endswith('password="hunter3";')


def test_a_secret_that_has_the_form_of_a_reference_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "a${env:OTHER}b")
    monkeypatch.setenv("OTHER", "wrong")
    flow = {option.replace("sink.", "sink.one."): text for option, text in job().items()} | {"sinks": "one"}
    for properties, option in ((job(), "sink.target.password"), (flow, "sink.one.target.password")):
        (of_file,) = config.build_flow(config.JobFile(properties | {option: "${env:SECRET}"}))
        (of_values,) = config.build_flow(properties | {option: "a${env:OTHER}b"})
        for built in (of_file, of_values):
            assert built.config["sink.target.password"].value == "a${env:OTHER}b"


async def test_nothing_resolves_what_a_worker_has_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may forbid what a job file can use, such as files outside of ``allowed.paths``."""
    monkeypatch.setenv("SECRET", "hunter2")
    left = job() | {"source.format": "${env:SECRET}"}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(left)))
    events = io.StringIO()
    assert run.run_file("-", events, resolved=True) == 2
    assert run.run_text(json.dumps(left), events, run.Attendance(lambda _: None)) == 2
    answers = [
        *events.getvalue().splitlines(),
        str(plan_flow(left)),
        str(await SparkJob.validate(left)),
        str(plan_flow(job(), left)),
    ]
    assert len(answers) == 5
    for answer in answers:
        assert "hunter2" not in answer
        assert "Invalid value ${env:SECRET} for configuration source.format" in answer


def test_tls_of_clients_that_are_not_java(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "ca.jks").write_bytes(b"\xfe\xed\xfe\xed")
    tls = {"kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": ""}
    good = config.build_job(job() | tls | {"kafka.ssl.truststore.location": str(tmp_path / "ca.pem")})
    assert clients.build_client_config(good.config) == {
        "bootstrap.servers": "h:9092",
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    bad = config.build_job(job() | tls | {"kafka.ssl.truststore.location": str(tmp_path / "ca.jks")})
    with pytest.raises(ConfigInvalid, match=r"is a Java key store \(JKS\).*keytool"):
        clients.build_client_config(bad.config)


def java_of(properties: dict[str, str]) -> dict[str, str]:
    """The TLS properties that Spark's client gets, with the content of the files that they name."""
    prefixed = {f"kafka.{name}": text for name, text in properties.items()}
    built = config.build_job(job() | {"kafka.security.protocol": "SSL"} | prefixed)
    return {
        name.removeprefix("kafka."): text
        for name, text in clients.spark_options(built.config).items()
        if name.startswith("kafka.ssl.")
    }


def test_java_gets_stores_as_what_they_are(tmp_path: Path) -> None:
    """Java reads PEM only where the type says so, and refuses a store's password with it."""
    authority = Authority.make()
    issued = authority.issue("worker")
    trust, store = authority.write_pem(tmp_path / "trust.pem"), issued.write_pem(tmp_path / "worker.pem")
    pem = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    assert (
        java_of(
            {
                "ssl.truststore.location": str(trust),
                "ssl.truststore.password": "unused",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(store),
                "ssl.key.password": "unused",
            }
        )
        == pem
    )
    p12 = {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": "password",
        "ssl.truststore.location": str(authority.write_pkcs12(tmp_path / "trust.p12", "password")),
    }
    assert java_of(p12) == java_of(p12 | {"ssl.truststore.type": "PEM"}) == p12
    inline = {"ssl.truststore.certificates": authority.pem.replace("\n", " ")}
    assert java_of(inline) == inline | {"ssl.truststore.type": "PEM"}


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_keys_that_java_can_t_read_are_opened_for_it(tmp_path: Path, form: PrivateFormat) -> None:
    issued = Authority.make().issue("worker")
    key = issued.key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"key-password")).decode()
    store = tmp_path / "worker.pem"
    store.write_text(issued.chain_pem + key)
    opened = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": issued.key_pem(),
        "ssl.keystore.certificate.chain": issued.chain_pem.strip(),
    }
    properties = {"ssl.keystore.location": str(store), "ssl.key.password": "key-password"}
    assert java_of(properties) == opened
    # The password of a store in PEM is that of its key, for all clients.
    of_store = {"ssl.keystore.location": str(store), "ssl.keystore.password": "key-password"}
    assert java_of(of_store) == opened
    built = config.build_job(
        job() | {"kafka.security.protocol": "SSL"} | {f"kafka.{name}": text for name, text in of_store.items()}
    )
    assert clients.build_client_config(built.config)["ssl.key.password"] == "key-password"
    # One line, as a properties file may hold it.
    inline = {
        "ssl.keystore.key": key.replace("\n", " "),
        "ssl.keystore.certificate.chain": issued.chain_pem.replace("\n", " "),
        "ssl.key.password": "key-password",
    }
    if form is PrivateFormat.PKCS8:
        assert java_of(inline) == opened
    for wrong in ({"ssl.key.password": "wrong"}, {"ssl.key.password": ""}):
        with pytest.raises(
            ConfigInvalid, match=r"the private key can't be opened.*check kafka\.ssl\.key\.password"
        ) as caught:
            java_of(properties | wrong)
        assert "key-password" not in str(caught.value)


def test_remarks() -> None:
    built = config.build_job(
        job()
        | {
            "kafka.bootstrap.server": "typo",
            "source.fail.on.data.loss": "false",
            "errors.tolerance": "all",
            "spark.master": "spark://h:7077",
        }
    )
    remarks = "\n".join(plan.list_remarks(built))
    assert "kafka.bootstrap.server is no property that Kafka clients have" in remarks
    assert "source.fail.on.data.loss=false" in remarks
    assert "only logged" in remarks
    assert "the job can only continue from here" in remarks
