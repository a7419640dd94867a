"""What can be told of an artifact or a model without vouching for it."""
