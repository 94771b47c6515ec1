"""Why N ranks are not N times one."""
