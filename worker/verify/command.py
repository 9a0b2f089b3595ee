"""``millrace verify``: whether a topic says what the tables hold; the command, and its results."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from connectors.errors import ConfigInvalid, MillraceError, Retriable
from connectors.options import MASK
from worker.control.state.verifications import choose_sender, repair_request, topics_to_repair
from worker.launch import read_connector
from worker.properties import load_properties
from worker.rest.client import send_get
from worker.secrets.providers import ConfigTransformer, build_providers
from worker.verify.messages import VerificationRequest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from connectors.verify.differences import RowDifference
    from connectors.verify.rows import TableReport
    from worker.verify.cells import CellVerification
    from worker.verify.rows import RowVerification
    from worker.verify.targets import TargetVerification

_MYSQL: Final = re.compile(r"(?:.*[.:])?(?:MySqlConnector|MariaDbConnector)|mysql", re.IGNORECASE)
_SCYLLA: Final = re.compile(r"(?:.*[.:])?ScyllaConnector|scylla", re.IGNORECASE)
_CASSANDRA: Final = re.compile(r"(?:.*[.:])?Cassandra[45]?Connector|cassandra", re.IGNORECASE)
_SPARK: Final = re.compile(r"(?:.*[.:])?SparkJob|spark", re.IGNORECASE)
EQUAL, DIFFERENT, FAILED = 0, 1, 2


def build_verification(
    connector: Mapping[str, str], worker: Mapping[str, str], asked: VerificationRequest
) -> RowVerification | CellVerification | TargetVerification:
    """The verification of a connector.

    Args:
        connector: the connector's configuration, references resolved.
        worker: the worker's properties: converters and Kafka clients.
        asked: what is asked.

    Raises:
        ConfigInvalid: its class, or its configuration, can't be verified.
    """
    kind = connector.get("connector.class", "").strip()
    # A source is imported where it is asked for.
    if _MYSQL.fullmatch(kind):
        from worker.verify.rows import RowVerification

        return RowVerification(connector, worker, asked)
    if _SPARK.fullmatch(kind):
        from worker.verify.targets import TargetVerification

        return TargetVerification(connector, worker, asked)
    from worker.verify.cells import CellVerification

    if _SCYLLA.fullmatch(kind):
        from connectors.scylla.verify import ScyllaView

        return CellVerification(ScyllaView(connector), connector, worker, asked)
    if _CASSANDRA.fullmatch(kind):
        from connectors.cassandra.verify import CassandraView

        return CellVerification(CassandraView(connector), connector, worker, asked)
    raise ConfigInvalid(f"connector.class={kind}: only MySQL, MariaDB, Scylla and Cassandra connectors can be verified")


# The command.


def run_verify(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    try:
        prepared = _prepare_verification(options)
        reports = asyncio.run(prepared.run())
    except (MillraceError, OSError) as error:
        sys.stderr.write(f"millrace verify: {error}\n")
        return FAILED
    sys.stdout.write((as_json if options.json else as_text)(reports, prepared.notes) + "\n")
    if options.repair:
        try:
            sys.stderr.write(f"millrace verify: {_request_repair(options, reports)}\n")
        except (MillraceError, OSError) as error:
            sys.stderr.write(f"millrace verify: --repair: {error}\n")
            return FAILED
    return EQUAL if all(report.equal for report in reports) else DIFFERENT


def _request_repair(options: argparse.Namespace, reports: Sequence[TableReport]) -> str:
    """Ask the worker for a snapshot of what differs; says what was asked for."""
    if not (options.rest and options.connector):
        raise ConfigInvalid("it needs --rest and --connector: the connector sends the rows again")
    result = {"tables": [table_body(report) for report in reports]}
    request = repair_request(result)
    if request is None:
        return "no row can be sent again"
    topics = topics_to_repair(result)
    sender = choose_sender(topics, _ask_writers(options.rest)) if topics else options.connector
    body = json.dumps(request).encode()
    snapshot = json.loads(send_get(_endpoint_url(options.rest, sender, "snapshots"), body=body))
    return f"the snapshot {snapshot['id']} of {sender} sends again {', '.join(request['tables'])}"


def _ask_writers(url: str) -> dict[str, set[str]]:
    """The topics of each source connector of a cluster. Blocks."""
    connectors = json.loads(send_get(f"{url.rstrip('/')}/connectors?expand=status"))
    sources = [name for name, views in connectors.items() if views["status"]["type"] == "source"]
    return {name: set(ask_worker(url, name, "topics")[name]["topics"]) for name in sources}


def _endpoint_url(url: str, connector: str, path: str) -> str:
    return f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}/{path}"


def _prepare_verification(options: argparse.Namespace) -> RowVerification | CellVerification | TargetVerification:
    worker = load_properties(options.worker) if options.worker else {}
    transformer = ConfigTransformer(build_providers(worker))
    worker, _ = transformer.transform(worker)
    if options.bootstrap_servers:
        worker["bootstrap.servers"] = options.bootstrap_servers
    if "bootstrap.servers" not in worker:
        raise ConfigInvalid("say where Kafka is: --worker FILE or --bootstrap-servers HOST:PORT")
    name = options.connector or ""
    if options.connector_config:
        raw = read_connector(Path(options.connector_config))
        name = name or (raw["name"] if options.rest else "")
    elif name and options.rest:
        raw = ask_worker(options.rest, name, "config")
    else:
        raise ConfigInvalid("say which connector: --connector-config FILE, or --connector NAME with --rest URL")
    hidden = sorted(key for key, value in raw.items() if value == MASK)
    if hidden:
        raise ConfigInvalid(
            f"the worker doesn't show {', '.join(hidden)}: give the configuration with --connector-config "
            "FILE, or write secrets as references to a config provider and give --worker FILE"
        )
    raw, _ = transformer.transform(raw)
    try:
        pattern = re.compile(options.tables, re.IGNORECASE)
    except re.error as error:
        raise ConfigInvalid(f"--tables {options.tables!r}: {error}") from error
    offsets = (lambda: list(ask_worker(options.rest, name, "offsets")["offsets"])) if options.rest and name else None
    asked = VerificationRequest(
        includes=lambda table: not options.tables or pattern.fullmatch(table) is not None,
        offsets=offsets,
        timeout_s=options.timeout,
        settle_s=options.settle,
        examples=options.examples,
        folder=options.tmp,
        rows_per_s=options.rate,
    )
    return build_verification(raw, worker, asked)


def ask_worker(url: str, connector: str, view: str) -> dict[str, Any]:
    """Return a worker's view of a connector. Blocks.

    Raises:
        ConfigInvalid: the worker refuses the request.
        Retriable: the worker is unavailable.
    """
    target = _endpoint_url(url, connector, view)
    try:
        answer_body: dict[str, Any] = json.loads(send_get(target))
    except (OSError, ValueError) as error:
        raise Retriable(f"{target}: {error}; is a worker there?") from error
    return answer_body


def as_json(reports: Sequence[TableReport], notes: Sequence[str]) -> str:
    """The result as one JSON document."""
    return json.dumps(
        {
            "equal": all(report.equal for report in reports),
            "notes": list(notes),
            "tables": [table_body(report) for report in reports],
        },
        indent=1,
        ensure_ascii=False,
    )


def table_body(report: TableReport) -> dict[str, Any]:
    """The result of one table, as JSON has it."""
    return {
        "table": report.table,
        "topics": report.topics,
        "equal": report.equal,
        "rows": {"source": report.total.source_rows, "topic": report.total.topic_rows},
        "checksum": {
            "source": f"{report.total.source_checksum:016x}",
            "topic": f"{report.total.topic_checksum:016x}",
        },
        "missing": report.missing,
        "extra": report.extra,
        "different": report.different,
        "unsettled": report.unsettled,
        "older_structure": report.older_structure,
        "examples": report.examples,
        "differences": [msgspec.to_builtins(row) for row in report.differences],
        "key_ranges": [list(bounds) for bounds in report.bad_ranges()],
        "condition": report.condition,
        "source_table": report.source_table,
        "note": report.note,
    }


def _difference_text(row: RowDifference) -> str:
    """A row that differs, for people."""
    left_out = f" and {row.columns_left_out} further columns" if row.columns_left_out else ""
    if row.source is None or row.topic is None:
        values = ", ".join(f"{name} {text}" for name, text in (row.source or row.topic or {}).items())
        return f"{row.key}: {values}{left_out}"
    names = {**row.source, **row.topic}
    values = ", ".join(
        f"{name} {row.source.get(name, 'nothing')} in the source, {row.topic.get(name, 'nothing')} on the topic"
        for name in names
    )
    return f"{row.key}: {values}{left_out}"


def as_text(reports: Sequence[TableReport], notes: Sequence[str]) -> str:
    """The result for people."""
    lines: list[str] = []
    for report in reports:
        total = report.total
        verdict = "equal" if report.equal else "DIFFERENT"
        lines.append(
            f"{report.table} and {', '.join(report.topics)}: {verdict}, {total.source_rows} rows in the source, "
            f"{total.topic_rows} on the topic, checksums {total.source_checksum:016x} {total.topic_checksum:016x}"
        )
        for kind, count, meaning in (
            ("missing", report.missing, "not on the topic"),
            ("extra", report.extra, "on the topic only"),
            ("different", report.different, "with other contents"),
            ("unsettled", report.unsettled, "that can't be compared (changed again since, or of an older structure)"),
        ):
            if count:
                lines.append(f"  {kind}: {count} rows {meaning}, such as {', '.join(report.examples.get(kind, ()))}")
                lines += [f"    {_difference_text(row)}" for row in report.differences if row.kind == kind]
        if report.older_structure:
            lines.append(
                f"  {report.older_structure} rows have an older structure on the topic: compared on common columns"
            )
        bad = report.bad_ranges()
        if bad:
            lines.append(
                "  first key column: "
                + ", ".join(f"{low}..{high}" for low, high in bad[:10])
                + (f" and {len(bad) - 10} further ranges" if len(bad) > 10 else "")
            )
        if report.note:
            lines.append(f"  {report.note}")
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])
