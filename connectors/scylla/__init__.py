"""The Scylla connector: changes of tables from their CDC logs."""
