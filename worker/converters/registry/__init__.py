"""The common parts of converters with a schema registry."""
