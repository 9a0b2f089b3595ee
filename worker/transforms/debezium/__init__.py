"""The transforms of Debezium."""
