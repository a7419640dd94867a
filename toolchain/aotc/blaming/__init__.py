"""Which nodes make an answer inexact: values compared node by node, and the fewest to keep."""
