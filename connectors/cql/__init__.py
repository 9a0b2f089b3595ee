"""What Scylla and Cassandra share: CQL types, their values and schemas, sessions, rows of a page."""
