"""Snapshots of tables, next to the stream."""
