"""A terminal."""
