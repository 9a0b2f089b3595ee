"""Job files and their options."""
