"""The request of a build, and the variants that follow from it."""
