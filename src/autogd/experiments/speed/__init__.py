"""What a step costs: time beside fused Adam and beside the memory's traffic, bytes, growth, share of training."""
