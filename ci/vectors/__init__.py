"""The contents of manifests/vectors, by kind; `make_vectors` writes them."""
