"""The data on which activations are observed, for integers and for half precision."""
