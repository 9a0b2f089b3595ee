"""Servers and programs that look at a cluster."""
