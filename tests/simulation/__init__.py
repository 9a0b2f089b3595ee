"""The control plane and delivery under deterministic simulation: virtual time, modelled Kafka, seeded faults."""
