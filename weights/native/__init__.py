"""The compiled kernels: built once on request, found again at every start."""
