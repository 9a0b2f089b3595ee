"""Formats: raw Kafka records into typed changes per table."""
