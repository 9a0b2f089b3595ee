"""Properties of workers, and configurations of connectors."""
