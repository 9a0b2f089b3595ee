"""The Scylla emulation: a real Cassandra dressed as Scylla with CDC, for machines without a Scylla.

It is an emulation, not Scylla: what it does follows Scylla's documentation (`dress`, `topology`, `rows`), and a real cluster
can be used in its place wherever `MILLRACE_SCYLLA=host:port` is set.
"""
