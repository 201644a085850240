"""Each experiment is a function that returns its runs; figures are drawn from the records of the runs."""
