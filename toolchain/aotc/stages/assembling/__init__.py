"""From proven variants to entries of the manifest."""
