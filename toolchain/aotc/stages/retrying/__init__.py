"""What is tried instead of a form that computes wrongly or does not run."""
