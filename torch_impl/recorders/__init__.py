"""`parity.torch_impl.recorder` in other people's loops: a module for each library, imported only with it."""
