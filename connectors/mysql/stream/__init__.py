"""The stream of changes: from raw events to records and positions."""
