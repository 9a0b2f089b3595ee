"""Spark itself: its session, its JVM, its workers and its checkpoint."""
