"""A connector, a transform, a predicate, a converter and a config provider that live outside Millrace."""
