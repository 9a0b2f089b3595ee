"""Names, numbers, dates and hashes as Java has them."""
