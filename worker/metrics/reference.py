"""Text of ``docs/reference/metrics.md``, from the metric registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.metrics.registry import CONNECT, MILLRACE, Family, Metric, MetricKind
from worker.metrics.topics import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable

_INTRO: Final = """# Metrics

<!-- Made by `millrace docs` from worker/metrics/registry.py: do not edit. -->

`GET /metrics` on the REST port of each worker answers in Prometheus' text format. Each worker shows the connectors and tasks
that it runs; failed tasks keep their series until they are restarted elsewhere or deleted.

Rates, averages and maxima cover the last 30 to 60 seconds, as in Kafka Connect. Shares ("ratio", "percentage") are from 0 to 1.

## Name families

Kafka Connect has no Prometheus names of its own: they come from the rules of a JMX exporter, and dashboards follow those.
`metrics.families` of the worker chooses one or more (default `A,D`); [metrics.md](../metrics.md) says which public dashboard
needs which, and how many series there are.

- `A`: Strimzi's JMX exporter rules, dashboards and alerts, such as `kafka_connect_connector_status{status="failed"}`;
- `B`: Confluent's rules (jmx-monitoring-stacks) and Aiven's. Their dashboards filter on a label
  `kafka_connect_cluster_id`: add it in the scrape configuration;
- `C`: Strimzi's metrics reporter: as `B`, but text attributes end in `_info`;
- `D`: Debezium's example rules: `debezium_metrics_*` of the connectors that have them, and a few of the worker's.

`B` and `C` have two forms of a name that ends in `_total`, with and without it: exporters built on the Prometheus client 1.x
take it off. A state is one series whose value is 1, with the state in lower case as a label; the other states have no series.

`jvm_*` are stand-ins (`metrics.jvm.names=false` leaves them out): memory, threads and garbage collection of the Python
processes.
"""


def render_metrics() -> str:
    """The page."""
    parts = [_INTRO, "\n## Kafka Connect's metrics\n"]
    groups: dict[str, list[Metric]] = {}
    for metric in CONNECT:
        groups.setdefault(metric.group, []).append(metric)
    for group, metrics in groups.items():
        parts.append(
            f"\n### {group}\n\n{_format_labels(metrics)}\n\n| attribute | A | B | C | D | type | unit | meaning |\n"
            "|---|---|---|---|---|---|---|---|\n"
        )
        for metric in metrics:
            names = " | ".join(_exposed_name(metric, family) for family in Family)
            parts.append(f"| {metric.name} | {names} | {metric.kind} | {metric.unit} | {metric.help} |\n")
    parts.append("\n## Millrace's own metrics\n\n| name | labels | type | unit | meaning |\n|---|---|---|---|---|\n")
    parts += [
        f"| `{metric.name}` | {', '.join(metric.labels)} | {metric.kind} | {metric.unit} | {metric.help} |\n"
        for metric in MILLRACE
    ]
    parts.append(
        "\n### Each topic of a source task\n\nLabels: connector, task, topic. Most connectors write a topic for each table. "
        "`metrics.tables.max` bounds them: further\ntopics share the series `other`.\n\n"
        "| name | type | meaning |\n|---|---|---|\n"
    )
    parts += [f"| `{name}` | {kind} | {text} |\n" for name, (kind, text) in TOPICS.items()]
    parts.append(
        "\nConnectors add metrics of their own, with the labels `connector` and `task`; their pages list them.\n"
    )
    return "".join(parts)


def _format_labels(metrics: Iterable[Metric]) -> str:
    labels = next(iter(metrics)).labels
    return f"Labels: {', '.join(f'`{label}`' for label in labels)}." if labels else "No labels."


def _exposed_name(metric: Metric, family: Family) -> str:
    label = f"{{{metric.name.replace('-', '_')}}}" if metric.kind is MetricKind.TEXT else ""
    return ", ".join(f"`{name}{label}`" for name in metric.exposed(family))
