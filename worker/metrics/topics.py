"""The numbers that each source task has of each topic that it writes: most connectors write a topic for each table."""

from __future__ import annotations

from typing import Final

RECORDS: Final = "millrace_topic_records_written_total"
BYTES: Final = "millrace_topic_bytes_written_total"
DELAY: Final = "millrace_topic_delay_seconds"
LAST: Final = "millrace_topic_last_record_time_seconds"

#: Name -> (kind, help). Labels: connector, task, topic.
TOPICS: Final[dict[str, tuple[str, str]]] = {
    RECORDS: ("counter", "Records acknowledged by Kafka."),
    BYTES: ("counter", "Bytes of record batches acknowledged by Kafka, compressed."),
    DELAY: (
        "gauge",
        "Age of the latest acknowledged poll with records of the topic, by its last record's own timestamp.",
    ),
    LAST: ("gauge", "That timestamp, seconds since 1970."),
}
