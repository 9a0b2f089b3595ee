"""The HBase sink: a row per key or per change, whose cells have the order number of the change as version."""
