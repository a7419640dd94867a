"""Values for a model's inputs: derived from its operators, drawn from a seed, given by the user."""
