"""Prometheus' text format as prometheus_client reads and writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

#: Name, labels and value of each sample, by the name, type and help of its metric.
Samples = dict[tuple[str, str, str], list[tuple[str, tuple[tuple[str, str], ...], float]]]


class _Parsed:
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """The metrics as they were read."""
        return iter(self._metrics)


def read_samples(text: str) -> Samples:
    """The samples of an exposition, as the library's parser reads them."""
    return {
        (metric.name, metric.type, metric.documentation): [
            (sample.name, tuple(sorted(sample.labels.items())), sample.value) for sample in metric.samples
        ]
        for metric in text_string_to_metric_families(text)
    }


def rewrite(text: str) -> str:
    """The same metrics as the library writes them."""
    registry = CollectorRegistry()
    registry.register(_Parsed(list(text_string_to_metric_families(text))))
    return generate_latest(registry).decode()
