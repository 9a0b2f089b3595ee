"""The Cassandra sink (and Scylla): rows written with the order number of their change as the time of the write."""
