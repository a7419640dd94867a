"""Sources other than ONNX files: importers, one a file, and their answers as the reference."""
