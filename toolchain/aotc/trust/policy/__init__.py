"""Trust policies: reading, writing, signing and applying them."""
