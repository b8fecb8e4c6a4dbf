"""Models and scripts that are no spec of ours: described, mapped, compared and diagnosed. Loads no framework."""
