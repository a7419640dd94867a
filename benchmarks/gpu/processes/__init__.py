"""Programs of which each answers once; their parent's clock starts before they do.

Arguments: what to load, INPUTS.npz and further ones.  They print `answered` once the outputs are on
the host.
"""
