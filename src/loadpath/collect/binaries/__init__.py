"""Binaries as files: ELF, the GPU code inside, and what the dynamic loader would make of them. Nothing is ever loaded."""
