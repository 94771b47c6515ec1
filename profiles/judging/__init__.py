"""Two sets of measures held against each other, against budgets, or against more GPUs."""
