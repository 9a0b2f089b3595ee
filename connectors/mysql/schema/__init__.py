"""Structures of tables, and the Connect schemas of their columns."""
