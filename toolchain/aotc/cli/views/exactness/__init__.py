"""Views of how exact variants are: gates, equal answers, and errors by node."""
