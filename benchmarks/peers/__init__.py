"""The same training in other frameworks, to run on the same machine at the same time as ringscope's own."""
