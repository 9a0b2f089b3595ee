"""Cassandra's serialized mutations, as commit logs hold them: what decodes and writes them."""
