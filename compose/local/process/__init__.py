"""Servers as processes: starting them, guarding them, telling one from another."""
