"""Text of ``docs/reference/metrics.md``, from the metric registry."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.metrics.registry import CONNECT, OWN, Family, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

_INTRO: Final = """# Metrics

<!-- Made by `millrace docs` from worker/metrics/registry.py: do not edit. -->

`GET /metrics` on the REST port of each worker answers in Prometheus' text format. Each worker shows the connectors and tasks
that it runs; failed tasks keep their series until they are restarted elsewhere or deleted.

Rates, averages and maxima cover the last 30 to 60 seconds, as in Kafka Connect. Shares ("ratio", "percentage") are from 0 to 1.

## Name families

Kafka Connect has no Prometheus names of its own: they come from the rules of a JMX exporter, and dashboards follow those.
`metrics.families` of the worker chooses one or more:

- `A` (default): Strimzi's JMX exporter rules, dashboards and alerts, such as
  `kafka_connect_connector_status{status="failed"}`;
- `B`: Confluent's rules (jmx-monitoring-stacks) and Aiven's. Their dashboards filter on a label
  `kafka_connect_cluster_id`: add it in the scrape configuration;
- `C`: Strimzi's metrics reporter: as `B`, but text attributes end in `_info`.

A state is one series whose value is 1, with the state in lower case as a label; the other states have no series.

There is no JVM and no Java client here, so metrics of those (`jvm_*`, `kafka_producer_*`, `kafka_consumer_*`,
`kafka_admin_client_*`) are not shown: `process_*` and `millrace_*` have what corresponds to them.
"""


def render() -> str:
    """The page."""
    parts = [_INTRO, "\n## Kafka Connect's metrics\n"]
    groups: dict[str, list[Metric]] = {}
    for metric in CONNECT:
        groups.setdefault(metric.group, []).append(metric)
    for group, metrics in groups.items():
        parts.append(f"\n### {group}\n\n{_labels(metrics)}\n\n| attribute | A | B | C | type | unit | meaning |\n"
                     "|---|---|---|---|---|---|---|\n")
        parts += [f"| {metric.name} | {_name(metric, Family.A)} | {_name(metric, Family.B)} | {_name(metric, Family.C)} | "
                  f"{metric.kind} | {metric.unit} | {metric.help} |\n" for metric in metrics]
    parts.append("\n## Millrace's own metrics\n\n| name | labels | type | unit | meaning |\n|---|---|---|---|---|\n")
    parts += [f"| `{metric.name}` | {', '.join(metric.labels)} | {metric.kind} | {metric.unit} | {metric.help} |\n"
              for metric in OWN]
    parts.append("\nConnectors add metrics of their own, with the labels `connector` and `task`; their pages list them.\n")
    return "".join(parts)


def _labels(metrics: Iterable[Metric]) -> str:
    labels = next(iter(metrics)).labels
    return f"Labels: {', '.join(f'`{label}`' for label in labels)}." if labels else "No labels."


def _name(metric: Metric, family: Family) -> str:
    name = metric.exposed(family)
    if name is None:
        return ""
    if metric.kind is Kind.TEXT:
        return f"`{name}{{{metric.name.replace('-', '_')}}}`"
    return f"`{name}`"
