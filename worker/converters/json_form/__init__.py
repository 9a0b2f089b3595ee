"""JSON and JSON Schemas, as Kafka's and Confluent's converters have them."""
