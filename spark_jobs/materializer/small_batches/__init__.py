"""Small batches, merged next to the driver instead of in Spark's tasks."""
