"""Links between two frozen models: fit, compare and save adapters and heads."""
