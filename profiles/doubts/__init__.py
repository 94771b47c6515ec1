"""Every doubt has a function here, which makes it: a code, a text and the next action.

The caller decides that a doubt holds and calls its function here; docs/reference/doubts.md lists the codes. `weights`
says how serious each doubt is, and `trust` judges a recording by its doubts.
"""
