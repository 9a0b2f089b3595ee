"""Checking a connector's configuration: the answers of ``.../config/validate`` and ``GET .../config``, as Kafka Connect's."""
