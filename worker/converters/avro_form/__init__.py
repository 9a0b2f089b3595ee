"""Avro's schemas and binary form, as Confluent's AvroData has them."""
