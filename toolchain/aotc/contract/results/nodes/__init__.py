"""Errors by node: what is inside of a variant against its model, and which nodes are to blame."""
