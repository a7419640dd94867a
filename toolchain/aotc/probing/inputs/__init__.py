"""Values that a model accepts: from its operators, from a seed, and from its user."""
