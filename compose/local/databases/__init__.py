"""Variants of database servers: pairs, clusters, and real MySQL."""
