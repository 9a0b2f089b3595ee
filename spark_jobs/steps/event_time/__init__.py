"""Steps that wait for event time: joins of streams, and windows."""
