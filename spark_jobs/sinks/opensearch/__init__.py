"""The sink for OpenSearch and Elasticsearch: a document per row, its version the order number of the change."""
