"""Every doubt that can be said: one function per doubt, with its code, its words and the next action.

The caller decides that a doubt holds and calls its function here; docs/reference/doubts.md lists the codes. What a
doubt weighs stands in `weights`, and `trust` puts it together.
"""
