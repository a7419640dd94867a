"""Reading and changing ONNX graphs: contents, weights, types and names of dims."""
