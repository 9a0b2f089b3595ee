"""The Redis sink: a hash, JSON, a string, a member of a sorted set or an entry of a stream per row."""
