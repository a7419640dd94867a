"""What is in manifests/vectors, by kind; `make_vectors` writes it."""
