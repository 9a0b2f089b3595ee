"""Reading lines of files that grow, rotate and are compressed: shared by the connectors file and logs."""
