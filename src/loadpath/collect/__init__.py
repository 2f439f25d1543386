"""The live machine → samples: read-only probes with time-outs, each kept with how it was asked. No meaning here."""
