"""Checking folders of models: each built in a sandbox, its answers compared, its outcome told."""
