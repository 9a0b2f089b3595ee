"""``type=python`` and functions of the user's in SQL."""
