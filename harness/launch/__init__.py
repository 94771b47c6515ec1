"""A cell becomes an argv and an environment: pure functions, one module a launcher."""
