"""Measures of a GPU that stand beside its ledger: kernels, copies, collectives, calls of the host; and the doubts about
them."""
