"""Single message transforms, predicates and their pipeline."""
