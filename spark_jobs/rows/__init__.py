"""Rows before a sink sees them: changed structures, masks, and values that don't fit."""
