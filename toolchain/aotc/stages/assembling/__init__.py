"""From proven variants to the fixtures, file entries and manifests of a payload."""
