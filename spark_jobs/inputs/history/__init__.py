"""``source.type=history``."""
