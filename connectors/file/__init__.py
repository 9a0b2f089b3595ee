"""Source connector for lines of files (Kafka Connect's FileStreamSource, and more)."""
