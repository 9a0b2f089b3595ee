"""Structures of tables, by the server's ids."""
