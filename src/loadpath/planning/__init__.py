"""Pure arithmetic of memory and speed: no text of any log, no judgement."""
