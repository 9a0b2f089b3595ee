"""Inputs of a job: which records a batch has, whatever they are read from. ``sources`` decodes them."""
