"""Config providers and the masking of secrets."""
