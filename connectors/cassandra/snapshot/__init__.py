"""Snapshots: whole tables read by token ranges while the log is read, as partition updates that merge with it in any order.

``SNAPSHOT.md`` says what can't be read of a table and what is sent in its place.
"""
