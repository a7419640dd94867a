"""Reading, weighing, rewriting and partitioning ONNX graphs, without ONNX Runtime."""
