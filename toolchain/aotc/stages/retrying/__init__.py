"""What is tried when a form of a variant computes wrongly or does not run."""
