"""Options of the Cassandra connector, and what follows from them."""
