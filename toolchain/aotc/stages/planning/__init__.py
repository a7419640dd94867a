"""What a build was asked for, and the variants that follow from it."""
