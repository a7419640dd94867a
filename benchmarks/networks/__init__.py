"""Networks for benchmarks and tests: generated here, or exported as their users do."""
