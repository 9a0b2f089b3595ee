"""Resources of Kafka Connect's REST API."""
