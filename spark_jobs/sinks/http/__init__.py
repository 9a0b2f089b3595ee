"""The HTTP sink: rows as requests to any service."""
