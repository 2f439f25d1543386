"""NCCL and InfiniBand."""
