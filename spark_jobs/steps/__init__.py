"""Steps of a flow: they transform the changes of tables between a source and a sink."""
