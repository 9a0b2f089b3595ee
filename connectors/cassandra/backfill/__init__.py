"""Backfills: whole tables read by token ranges beside the log, as partition updates that merge with it in any order.

``BACKFILL.md`` says what can't be read of a table and what is sent in its place.
"""
