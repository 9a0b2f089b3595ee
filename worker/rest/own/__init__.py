"""Resources that Kafka Connect does not have."""
