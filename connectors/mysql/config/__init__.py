"""Options of the MySQL connector, and what follows from them."""
