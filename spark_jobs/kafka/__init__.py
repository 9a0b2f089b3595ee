"""A job's place in Kafka: clients, positions, lag and topics."""
