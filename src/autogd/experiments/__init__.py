"""The experiments: each a function that says what to run; figures are drawn from what the runs recorded."""
