"""The compacted topics: reading them to their end, the offset store, and Kafka Connect's own record formats."""
