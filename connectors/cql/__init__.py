"""The common parts of Scylla and Cassandra: CQL types, their values and schemas, sessions, rows of a page."""
