"""What models refer to outside their own files, read without onnx."""
