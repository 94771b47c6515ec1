"""Explain why N ranks are not N times one."""
