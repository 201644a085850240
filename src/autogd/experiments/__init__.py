"""The experiments: each is a function that returns its runs. Figures are drawn from the records of the runs."""
