"""The dialects: how each database loads rows and merges them."""
