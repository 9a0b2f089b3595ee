"""Millrace's own transforms."""
