"""The plan of a step: tables in, tables out, and where columns come from."""
