"""Gates for CI: check a run against budgets, a baseline, and the history of earlier runs (docs/guides/ci.md)."""
