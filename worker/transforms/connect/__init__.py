"""The transforms of Kafka Connect 4.1."""
