"""A config provider that lives outside Millrace."""
