"""Rules of thumb, each measured as two ways to train: against the rule's advice, and following it."""
