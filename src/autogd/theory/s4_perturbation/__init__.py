"""How far the output moves when the weights move: bounds, operations on bounds, and the bound of a network."""
