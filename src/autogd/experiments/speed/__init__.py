"""The cost of a step: time relative to fused Adam and to memory bandwidth, memory, growth, share of training."""
