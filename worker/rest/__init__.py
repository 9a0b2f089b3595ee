"""Kafka Connect's REST API over aiohttp: one module per resource."""
