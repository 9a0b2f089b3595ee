"""Listeners with logins and TLS, and the certificates for them."""
