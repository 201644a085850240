"""How a step is carried out on tensors: machinery only."""
