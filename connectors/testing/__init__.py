"""The conformance kit: what every connector must pass."""
