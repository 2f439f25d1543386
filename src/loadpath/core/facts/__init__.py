"""The typed facts that captures state, by topic."""
