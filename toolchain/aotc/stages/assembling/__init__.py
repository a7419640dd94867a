"""From proven variants to the fixtures, entries and manifests of a payload."""
