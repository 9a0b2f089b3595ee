"""Callers of the REST API: authentication, access, limits, and trust between workers."""
