"""The same training in other frameworks, to be run in the same lease as ringscope's own."""
