"""Snapshots of tables next to the stream: what the connectors of databases share. No I/O, and nothing of one source."""
