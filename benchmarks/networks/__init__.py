"""Networks that benchmarks and tests are given: made here, or exported as their users do."""
