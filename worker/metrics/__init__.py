"""The metric registry and its Prometheus exporter."""
