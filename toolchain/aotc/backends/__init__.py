"""Execution providers, one a file, and the import of ONNX Runtime itself."""
