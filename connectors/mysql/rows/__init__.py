"""Rows: from stored bytes and text to values, and straight to bytes for Kafka."""
