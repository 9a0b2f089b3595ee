"""Expressions over records: conditions and topic names, for Debezium's ``Filter`` and ``ContentBasedRouter``."""
