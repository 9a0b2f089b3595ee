"""Where the stream of a MySQL connector is: positions, what was delivered of them, and by which task."""
