"""Measures of a GPU beside the ledger: kernels, copies, collectives, the host, and doubts about these measures."""
