"""Trust policies, signers, and the predicates of attestations."""
