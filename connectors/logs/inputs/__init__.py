"""Inputs of the logs connector: files, and topics."""
