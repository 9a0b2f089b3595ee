"""A connector that lives outside Millrace."""
