"""What a step costs on many ranks: planned, not run."""
