"""Everything that nvidia-smi prints."""
