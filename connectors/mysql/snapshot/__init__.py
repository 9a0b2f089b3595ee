"""Reads the full contents of tables in chunks, at the same time as the stream."""
