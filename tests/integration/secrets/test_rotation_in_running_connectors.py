"""Secrets that change while connectors run: the tasks continue with the new ones, without a restart and without a loss."""

from __future__ import annotations

import configparser
import json
import secrets
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from compose.local.ports import LOOPBACK
from tests.support.http_services import Vault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.worker import MillraceWorker
    from tests.conftest import HasBootstrap, HasMariaDb

VAULT = Path(__file__).parents[2] / "plugins" / "vault"


class Shop:
    """A database with one table and an account whose password changes."""

    def __init__(self, server: HasMariaDb) -> None:
        self.name = f"rot{secrets.token_hex(4)}"
        self.port = server.port
        self._root = pymysql.connect(
            host=LOOPBACK, port=server.port or 0, user=server.user, password=server.password, autocommit=True
        )
        self._rows = 0
        self.password = ""
        self.sql(
            f"CREATE DATABASE {self.name}",
            f"CREATE TABLE {self.name}.t (id INT PRIMARY KEY)",
            f"CREATE USER '{self.name}'@'%'",
            f"GRANT SELECT, RELOAD, LOCK TABLES, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "
            f"'{self.name}'@'%'",
        )
        self.new_password()

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        with self._root.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def new_password(self) -> None:
        self.password = f"pw-{secrets.token_hex(8)}"
        self.sql(f"ALTER USER '{self.name}'@'%' IDENTIFIED BY '{self.password}'")

    def cut(self) -> int:
        """Kill the account's connections; how many there were."""
        threads = self.sql(f"SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{self.name}'")  # noqa: S608
        for (thread,) in threads:
            try:
                self.sql(f"KILL CONNECTION {thread}")
            except pymysql.err.OperationalError:
                continue  # it has ended on its own
        return len(threads)

    def insert(self, count: int) -> None:
        values = ",".join(f"({self._rows + number})" for number in range(count))
        self.sql(f"INSERT INTO {self.name}.t VALUES {values}")  # noqa: S608 - names of this test's own
        self._rows += count

    @property
    def rows(self) -> int:
        return self._rows

    def close(self) -> None:
        self.sql(f"DROP USER '{self.name}'@'%'", f"DROP DATABASE {self.name}")
        self._root.close()


@pytest.fixture
def shop(mariadb: HasMariaDb) -> Iterator[Shop]:
    shop = Shop(mariadb)
    yield shop
    shop.close()


@pytest.fixture(scope="module")
def vault_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package, as an installation leaves it."""
    target = tmp_path_factory.mktemp("plugins")
    shutil.copytree(VAULT / "millrace_vault", target / "millrace_vault", ignore=shutil.ignore_patterns("__pycache__"))
    declared = configparser.ConfigParser()
    declared.read(VAULT / "setup.cfg")
    ((group, entries),) = declared["options.entry_points"].items()
    info = target / "millrace_vault-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: millrace-vault\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]{entries}\n")
    return target


def connector(shop: Shop, password: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "mysql",
        "tasks.max": "1",
        "topic.prefix": shop.name,
        "database.hostname": LOOPBACK,
        "database.port": str(shop.port),
        "database.user": shop.name,
        "database.password": password,
        "database.include.list": shop.name,
        "errors.retry.delay.max.ms": "500",
        **more,
    }


def ids(bootstrap: str, topic: str, count: int) -> set[int]:
    """The ids in a topic, once there are ``count`` different ones or time is over."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{secrets.token_hex(4)}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
        }
    )
    consumer.subscribe([topic])
    read_ids: set[int] = set()
    deadline = time.monotonic() + 40
    try:
        while len(read_ids) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            key = message.key() if message is not None and message.error() is None else None
            if key is not None:
                read_ids.add(json.loads(key)["payload"]["id"])
        return read_ids
    finally:
        consumer.close()


def log_of(worker: MillraceWorker) -> str:
    return worker.log_path.read_text(encoding="utf-8")


def check_rows(worker: MillraceWorker, bootstrap: str, topic: str, count: int) -> None:
    """Check that the topic comes to hold the first ``count`` rows; the worker's log is shown where it does not."""
    assert ids(bootstrap, topic, count) == set(range(count)), f"{topic}:\n{log_of(worker)[-10000:]}"


def test_a_task_goes_on_with_a_new_password(
    millrace: Callable[..., MillraceWorker], kafka: HasBootstrap, shop: Shop, tmp_path: Path
) -> None:
    login = tmp_path / "login.properties"
    login.write_text(f"password={shop.password}\n")
    worker = millrace(
        properties={
            "config.providers": "file",
            "config.providers.file.class": "FileConfigProvider",
            "config.providers.refresh.interval.ms": "500",
        }
    )
    shop.insert(20)
    worker.create("shop", connector(shop, f"${{file:{login}:password}}"))
    worker.wait_running("shop", 1)
    topic = f"{shop.name}.{shop.name}.t"
    check_rows(worker, kafka.bootstrap, topic, 20)

    # The file comes late: the source refuses the old password until then.
    shop.new_password()
    assert shop.cut() > 0
    shop.insert(20)
    worker.wait_for(lambda: "retrying" in log_of(worker), 20, "the task did not notice", lambda: log_of(worker)[-2000:])
    assert worker.states("shop") == ("RUNNING", ["RUNNING"])
    login.write_text(f"password={shop.password}\n")
    check_rows(worker, kafka.bootstrap, topic, 40)

    # The file is replaced first, and is missing for a while afterwards.
    old = shop.password
    shop.new_password()
    login.write_text(f"password={shop.password}\n")
    worker.wait_for(
        lambda: log_of(worker).count("new values of database.password are used") >= 2,
        20,
        "no new value",
        lambda: log_of(worker)[-2000:],
    )
    login.unlink()
    worker.wait_for(
        lambda: "the last ones are used on" in log_of(worker), 20, "no warning", lambda: log_of(worker)[-2000:]
    )
    shop.cut()
    shop.insert(20)
    check_rows(worker, kafka.bootstrap, topic, 60)
    assert worker.states("shop") == ("RUNNING", ["RUNNING"])
    log = log_of(worker)
    assert "the task failed" not in log
    assert "starts again" not in log
    assert old not in log
    assert shop.password not in log


def test_a_vault_s_secrets_are_followed(
    millrace: Callable[..., MillraceWorker],
    kafka: HasBootstrap,
    shop: Shop,
    vault_plugin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One connector takes new values live, one asks for restarts as Kafka Connect does them."""
    monkeypatch.setenv("PYTHONPATH", str(vault_plugin))
    token = tmp_path / "token"
    token.write_text("root-token-1\n")
    with Vault("root-token-1", 1) as vault:
        vault.secrets["secret/data/shop"] = {"user": shop.name, "password": shop.password}
        worker = millrace(
            properties={
                "config.providers": "vault",
                "config.providers.vault.class": "vault",
                "config.providers.vault.param.address": vault.url,
                "config.providers.vault.param.token.file": str(token),
            }
        )
        password = "${vault:secret/data/shop:password}"
        worker.create("live", connector(shop, password))
        worker.create(
            "java", connector(shop, password, **{"config.action.reload": "restart", "topic.prefix": f"{shop.name}j"})
        )
        # Both have logged in: a first login that is refused fails a task for good.
        shop.insert(1)
        for prefix in (shop.name, f"{shop.name}j"):
            check_rows(worker, kafka.bootstrap, f"{prefix}.{shop.name}.t", 1)
        shop.new_password()
        vault.secrets["secret/data/shop"] = {"user": shop.name, "password": shop.password}
        worker.wait_for(
            lambda: (
                "live-0: new values of database.password are used" in log_of(worker)
                and "java-0: the task starts again to take over new values of database.password" in log_of(worker)
            ),
            20,
            "no rotation",
            lambda: log_of(worker)[-3000:],
        )
        vault.down = True
        shop.cut()
        shop.insert(30)
        for prefix in (shop.name, f"{shop.name}j"):
            check_rows(worker, kafka.bootstrap, f"{prefix}.{shop.name}.t", 31)
        worker.wait_for(
            lambda: "Config provider vault gives no values" in log_of(worker),
            20,
            "no warning",
            lambda: log_of(worker)[-2000:],
        )
        for name in ("live", "java"):
            assert worker.states(name) == ("RUNNING", ["RUNNING"])

        def counted() -> dict[str, float]:
            lines = [line.rpartition(" ") for line in str(worker.request("GET", "/metrics")[1]).splitlines()]
            return {
                name.partition("{")[0]: float(value)
                for name, _, value in lines
                if name.startswith("millrace_host_config_provider_")
            }

        worker.wait_for(lambda: len(counted()) == 2 and all(counted().values()), 20, "not counted", counted)
        metrics = worker.request("GET", "/metrics")[1]
        shown = worker.request("GET", "/connectors/live/config")[1]
        assert shown["database.password"] == password
    log = log_of(worker)
    assert "live-0: the task starts again" not in log
    assert "the task failed" not in log
    for secret in (shop.password, "root-token-1"):
        assert secret not in log
        assert secret not in str(metrics)
