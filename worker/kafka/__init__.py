"""Properties of Java's Kafka clients, for the clients of Python."""
