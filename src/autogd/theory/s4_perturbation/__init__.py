"""How far the output moves when the weights do: bounds, what each operation does to them, and a whole network's."""
