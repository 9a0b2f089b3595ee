"""Options of the Scylla connector, and what follows from them."""
