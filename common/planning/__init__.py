"""Before and around a run: what fits, how fast messages are, jobs for a cluster, manifests for Kubernetes."""
