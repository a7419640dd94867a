"""Reading and writing: records, canonical JSON, strict YAML, JSON Schemas."""
