"""The numbers beside the ledger: kernels, copies, collectives, the host, and how far to trust them."""
