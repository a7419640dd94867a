"""OCI registries: references, credentials, transfers and referrers; no artifact is known here."""
