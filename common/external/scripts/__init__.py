"""Records that training scripts of others have written, compared stage by stage."""
