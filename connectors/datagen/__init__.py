"""Load source with a seeded generator, for demos, benchmarks and fault tests."""
