"""From a source's records to Kafka, and the offsets that may be committed."""
