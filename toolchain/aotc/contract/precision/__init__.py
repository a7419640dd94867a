"""Precision as profiles ask for it: how a model is quantized, and how good it must stay."""
