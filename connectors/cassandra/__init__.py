"""The Cassandra connector: the commit log of every node and snapshots of tables, both as partition updates."""
