"""Published architectures as functions of their sizes, so that a tiny one is the same model made small."""
