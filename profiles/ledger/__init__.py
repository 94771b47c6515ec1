"""The ledger: an owner for each nanosecond of a GPU, and a cause for each idle one."""
