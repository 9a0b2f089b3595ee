"""The commit log of a Cassandra node: its segments as files, and the folder in which the node leaves them for CDC."""
