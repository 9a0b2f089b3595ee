"""The Cassandra connector: the commit log of every node as partition updates, and the tables' contents beside it."""
