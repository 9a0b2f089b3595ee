"""``source.type=files``."""
