"""CUDA on a real GPU, against torch.compile and plain ONNX Runtime sessions.

`python -m benchmarks.gpu` needs torch, transformers and onnxscript beside what aotc needs.  It runs
in short slots: each measurement is kept as soon as it is made, and the next run goes on after it.
"""
