"""Why an artifact differs from its model: node by node, and as a small model to report."""
