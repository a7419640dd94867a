"""Records and wire formats: profiles, manifests, reports, policies, traffic."""
