"""The optimizer's state in parts, one per rank (ZeRO-1)."""
