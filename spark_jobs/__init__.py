"""PySpark programs that consume the topics the workers fill."""
