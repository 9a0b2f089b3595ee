"""Masking of columns: rules, functions, and their use in records, updates and encoded rows."""
