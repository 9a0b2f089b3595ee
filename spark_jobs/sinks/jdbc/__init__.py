"""SQL databases."""
