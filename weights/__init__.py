"""The only code that touches files: models, tokenizers, checkpoints, tokenized text."""
