"""The driver's errors become errors that the runtime knows, and the message says which node and which query."""

import pytest
from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ConnectionShutdown
from cassandra.protocol import OverloadedErrorMessage, ProtocolException, ServerError, SyntaxException

from connectors.cql.cluster.failures import NodesAway, SchemaChanged, oversized_message, translate_error
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable

QUORUM = ConsistencyLevel.QUORUM
OVERLOADED = OverloadedErrorMessage(code=0x1001, message="too many requests", info=None)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OperationTimedOut(last_host="10.0.0.1:9042"), Retriable, "10.0.0.1:9042 did not answer in time"),
        (OperationTimedOut(), Retriable, "n1:9042 did not answer"),
        (ReadTimeout("late", consistency=QUORUM, required_responses=2, received_responses=1), Retriable, "QUORUM"),
        (ReadFailure("bad", consistency=QUORUM, failures=1), Retriable, "consistency level"),
        (Unavailable("few", consistency=QUORUM, required_replicas=2, alive_replicas=1), Retriable, "alive_replicas"),
        (OVERLOADED, Retriable, "too many requests"),
        (ServerError(code=0, message="boom", info=None), Retriable, "boom"),
        (ConnectionShutdown("gone"), Retriable, "gone"),
        (ConnectionBusy("full"), Retriable, "full"),
        (ConnectionException("reset"), Retriable, "reset"),
        (ConnectionRefusedError(111, "refused"), Retriable, "refused"),
        (
            NoHostAvailable("none", {"10.0.0.1:9042": ConnectionRefusedError(111, "refused")}),
            NodesAway,
            "10.0.0.1:9042: Conn",
        ),
        (NoHostAvailable("none", {}), NodesAway, "n1:9042"),
        (NoHostAvailable("none", {"h": OVERLOADED}), Retriable, "too many requests"),
        (
            NoHostAvailable("none", {"h": OSError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")}),
            ConfigInvalid,
            "trust store",
        ),
        (
            NoHostAvailable("none", {"h": AuthenticationFailed("Provided username u and/or password are incorrect")}),
            ConfigInvalid,
            "user and the password",
        ),
        (
            NoHostAvailable(
                "none", {"h": AuthenticationFailed("Unable to perform authentication: Cannot achieve consistency")}
            ),
            Retriable,
            "could not check the credentials",
        ),
        (AuthenticationFailed("wrong"), ConfigInvalid, "user and the password"),
        (UnresolvableContactPoints({}), NodesAway, "no name of the contact points n1:9042 can be resolved"),
        (InvalidRequest("Undefined column name x in table k.t"), SchemaChanged, "column name x"),
        # Scylla's words for the same.
        (InvalidRequest("Unrecognized name x"), SchemaChanged, "name x"),
        (InvalidRequest("unconfigured table t"), SchemaChanged, "table t"),
        (InvalidRequest("Keyspace k does not exist"), SchemaChanged, "Keyspace k"),
        (InvalidRequest("Cannot execute this query as it might involve data filtering"), Fatal, "filtering"),
        (Unauthorized("no SELECT permission"), Fatal, "grant SELECT"),
        (
            Unauthorized("User u has no MODIFY permission on <table k.t>"),
            Fatal,
            "grant MODIFY on what the query changes",
        ),
        (Unauthorized("no"), Fatal, "grant SELECT on what the query reads"),
        (SyntaxException(code=0x2000, message="line 1:0 no viable", info=None), Fatal, "no viable"),
        (ProtocolException(code=10, message="bad paging state", info=None), Fatal, "bad paging state"),
        (KeyError("x"), Fatal, "KeyError"),
    ],
)
def test_translation(error: Exception, kind: type[MillraceError], text: str) -> None:
    translated = translate_error(error, "SELECT 1 FROM k.t", ["n1:9042"])
    assert type(translated) is kind
    assert text in str(translated)
    assert "SELECT 1 FROM k.t" in str(translated)
    assert "{}" not in str(translated)
    assert "CDC log" not in str(translated)


def test_our_own_errors_pass_and_queries_are_cut() -> None:
    fatal = Fatal("x")
    assert translate_error(fatal, "q") is fatal
    assert len(str(translate_error(InvalidRequest("no"), "SELECT " + "x" * 10_000))) < 500


def test_a_refused_write_names_the_right_of_its_statement() -> None:
    assert "grant MODIFY" in str(translate_error(Unauthorized("no"), "INSERT INTO k.t (id) VALUES (1)"))
    assert "grant CREATE" in str(translate_error(Unauthorized("no"), "CREATE TABLE k.t (id int PRIMARY KEY)"))
    assert "grant MODIFY" in str(translate_error(Unauthorized("no"), "k.t"))  # a batch is named by its table


@pytest.mark.parametrize(
    "text",
    [
        "Rejected an oversized mutation (17000084/16777216) for keyspace: k. Top keys are: t.1",
        "org.apache.cassandra.db.MutationExceededMaxSizeException: x",
        "Mutation of 17000000 bytes is too large for the maximum size of 16777216",
    ],
)
def test_a_write_above_the_limit_is_recognized(text: str) -> None:
    error = ServerError(code=0, message=text, info=None)
    assert text in oversized_message(error)
    assert text in oversized_message(NoHostAvailable("none", {"h": error}))


@pytest.mark.parametrize("error", [OVERLOADED, NoHostAvailable("none", {"h": OVERLOADED}), OperationTimedOut()])
def test_passing_errors_are_not_above_the_limit(error: Exception) -> None:
    assert not oversized_message(error)
