"""GGUF: a whole model in one file, as llama.cpp keeps it."""
