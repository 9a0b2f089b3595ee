"""Lookups in Cassandra and Scylla: one prepared query per key, many at a time, each sent to a node that has the row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from connectors.errors import Fatal, Retriable
from spark_jobs.steps.lookup.sql_client import make_duplicate_error
from spark_jobs.steps.lookup.tls import make_tls_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.steps.lookup.model import Spec

#: Queries under way for each of the requests that the step may have at a time.
_PER_REQUEST: Final = 16
#: The version of the native protocol that all servers that matter speak.
_PROTOCOL: Final = 4


class CqlClient:
    """See ``model.Client``."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._cluster: Any = None
        self._session: Any = None
        self._query: Any = None
        self._uuids: list[bool] = []

    def fetch(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """See ``model.Client.fetch``."""
        from cassandra import DriverException, RequestExecutionException, Unauthorized
        from cassandra.cluster import NoHostAvailable
        from cassandra.concurrent import execute_concurrent_with_args

        spec = self._spec
        try:
            self._open_session()
            arguments = [
                tuple(UUID(str(part)) if is_uuid else part for part, is_uuid in zip(key, self._uuids, strict=True))
                for key in keys
            ]
            results = execute_concurrent_with_args(
                self._session,
                self._query,
                arguments,
                concurrency=spec.requests * _PER_REQUEST,
                raise_on_first_error=True,
            )
            rows_by_key = {}
            for key, (_, result) in zip(keys, results, strict=True):
                rows = result.current_rows
                if len(rows) > 1:
                    raise make_duplicate_error(spec, key)
                if rows:
                    rows_by_key[key] = tuple(rows[0])
        except NoHostAvailable as error:
            self.close()
            causes = {str(cause) for cause in error.errors.values()} if isinstance(error.errors, dict) else set()
            message = f"step {spec.step}: {spec.where}: {'; '.join(sorted(causes)) or error}"
            if any("AuthenticationFailed" in cause or "credentials" in cause for cause in causes):
                raise Fatal(f"{message}. Correct user and password") from error
            raise Retriable(message) from error
        except (DriverException, RequestExecutionException, TypeError, ValueError) as error:
            message = f"step {spec.step}: {spec.where}, table {spec.table}: {error}"
            if isinstance(error, RequestExecutionException | TimeoutError) and not isinstance(error, Unauthorized):
                raise Retriable(message) from error
            if type(error).__name__ in ("OperationTimedOut", "ConnectionException"):
                raise Retriable(message) from error
            raise Fatal(f"{message}. Correct table, on or columns of the step, or the rights of the user") from error
        return rows_by_key

    def _open_session(self) -> None:
        if self._session is not None:
            return
        from cassandra import ConsistencyLevel
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
        from cassandra.query import tuple_factory

        spec = self._spec
        profile = ExecutionProfile(
            row_factory=tuple_factory,
            request_timeout=spec.login.timeout_s,
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy()),
            consistency_level=ConsistencyLevel.name_to_value[spec.consistency],
        )
        login = PlainTextAuthProvider(spec.login.user, spec.login.password) if spec.login.user else None
        self._cluster = Cluster(
            contact_points=list(spec.hosts),
            auth_provider=login,
            ssl_context=make_tls_context(spec.login),
            protocol_version=_PROTOCOL,
            connect_timeout=spec.login.timeout_s,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        self._session = self._cluster.connect()
        self._query = self._session.prepare(build_query(spec))
        self._uuids = [column.type.typename in ("uuid", "timeuuid") for column in self._query.column_metadata]

    def close(self) -> None:
        """Close all connections."""
        cluster, self._cluster, self._session = self._cluster, None, None
        if cluster is not None:
            cluster.shutdown()


def build_query(spec: Spec) -> str:
    """The query for one key. Pure."""
    columns = ", ".join(_quote_name(name) for name in spec.fields)
    table = ".".join(_quote_name(part) for part in spec.table.split("."))
    return f"SELECT {columns} FROM {table} WHERE " + " AND ".join(f"{_quote_name(name)} = ?" for name in spec.on)  # noqa: S608 - quoted names


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
