"""``type=lookup``: columns from another system, by key."""
