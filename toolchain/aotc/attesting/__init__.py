"""Attestations that are added to an existing artifact: signatures, approvals, qualifications."""
