"""The Apache Iceberg sink."""
