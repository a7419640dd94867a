"""Execution providers, one per file, and the import of ONNX Runtime."""
