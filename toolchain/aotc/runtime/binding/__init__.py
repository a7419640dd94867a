"""Bound calls: inputs and outputs that stay on the device, by DLPack."""
