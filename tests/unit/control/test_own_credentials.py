"""New values of properties that a worker takes over while it runs: every client in use gets them."""

from __future__ import annotations

from offsets.log import CompactedLog
from worker.control.clients import left_for_a_start, own_properties


def test_logins_are_taken_over_and_the_rest_waits() -> None:
    names = {
        "sasl.jaas.config",
        "producer.sasl.jaas.config",
        "admin.ssl.key.password",
        "ssl.truststore.certificates",
        "rest.auth.jwt.secret",
        "bootstrap.servers",
        "listeners.https.ssl.keystore.password",
        "security.protocol",
        "admin.listeners.https.ssl.key.password",
    }
    assert left_for_a_start(names) == [
        "admin.listeners.https.ssl.key.password",
        "bootstrap.servers",
        "listeners.https.ssl.keystore.password",
        "rest.auth.jwt.secret",
        "security.protocol",
    ]
    # What is taken over without a prefix is what the worker's own clients read.
    assert set(own_properties(dict.fromkeys(names, "x"))) - set(left_for_a_start(names)) == {
        "sasl.jaas.config",
        "ssl.truststore.certificates",
    }


def test_a_log_that_is_not_connected_takes_credentials_for_its_next_connection() -> None:
    options = {"bootstrap_servers": ["h:1"], "sasl_plain_password": "old"}
    log = CompactedLog("t", options, lambda _, __: None)
    log.renew({"sasl_plain_password": "new", "bootstrap_servers": ["elsewhere:1"]})
    assert log._client == {"bootstrap_servers": ["h:1"], "sasl_plain_password": "new"}
    assert options["sasl_plain_password"] == "old"
