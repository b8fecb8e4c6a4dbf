"""Why: a catalogue of causes, the signatures of each, and the experiments that confirm them."""
