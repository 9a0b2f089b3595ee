"""Structures of tables, as they are and as they were."""
