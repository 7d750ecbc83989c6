"""The machine: a decoder-only Transformer and what can be done with it. Knows no files and prints nothing."""
