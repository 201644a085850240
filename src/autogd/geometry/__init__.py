"""How large is a perturbation of one tensor: mathematics only."""
