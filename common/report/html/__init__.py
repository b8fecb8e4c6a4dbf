"""HTML pages: one file each that opens anywhere, with escaped texts and no outside requests."""
