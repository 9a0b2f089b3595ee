"""Reads tables for a snapshot: their extent, their ranges and their rows."""
