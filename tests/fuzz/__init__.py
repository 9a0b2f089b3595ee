"""Fuzzing of the parsers that read foreign bytes: a small mutation fuzzer, and a target for each parser."""
