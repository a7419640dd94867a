"""Lower precision: half-precision and integer graphs, and the nodes that make them inexact."""
