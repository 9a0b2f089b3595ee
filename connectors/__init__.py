"""The contract for connectors, and one folder per source system."""
