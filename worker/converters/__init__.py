"""Converters between Connect data and bytes."""
