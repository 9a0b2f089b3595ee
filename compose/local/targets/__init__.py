"""Servers that jobs write to."""
