"""What models refer to outside of their own files, read without onnx."""
