"""Protobuf's schemas and binary form, as Confluent's ProtobufData has them."""
