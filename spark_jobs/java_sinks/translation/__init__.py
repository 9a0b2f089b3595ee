"""The common parts of the Java sinks: options, names, converters and transforms."""
