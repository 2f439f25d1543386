"""Transport prefixes and record headers: what stands before a program's words, and what it tells of their origin."""
