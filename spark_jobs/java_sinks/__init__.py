"""Configurations of Java's sink connectors as jobs: a module for each Java sink, and what they share. No Spark, no servers.

``model`` has the words (options, requests, answers), ``translate`` the whole way, ``converters`` and ``transforms`` what
every sink connector has, ``jdbc`` and ``table_names`` what the JDBC sinks share, ``connectors`` the classes that workers load.
"""
