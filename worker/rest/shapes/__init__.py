"""The shapes of bodies, and how requests are read by them."""
